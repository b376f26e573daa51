"""What a measured cell leaves in its attempt's folder: progress, iterations.npz, record.json."""

import io
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.measurements import Exchange, Probe
from hpml_jobs.core.quantization import Quantized
from hpml_jobs.core.record import Attempt, Facts, Model, Rank, Record
from hpml_jobs.core.validation import decode
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.attempt import AttemptFolder, Progress, utc_now
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.worker.epochs import Ran

Batch = TypeVar("Batch")

SAY_S = 2.0
"""Seconds between two words inside an epoch that is not measured."""


class Measured(NamedTuple):
    """What a rank hands to rank 0: its part of the record, and its arrays by name.

    Of the timed epoch, per iteration: `step_s`, `stall_s`, `loss`. Of the instrumented one:
    `parts_s` (iterations, phases in the order of `instruments.phases.Parts`), and per
    collective `collective_start_s` (from its iteration's batch), `collective_s` and
    `collective_served_s` (without waiting in line behind others). Of all epochs of training, one
    after another, per iteration: `curve_loss`, `curve_step_s`, `curve_lr`. `missing` says what
    could not be found out.
    """

    rank: Rank
    arrays: dict[str, NDArray[Any]]
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, rank: Rank, ran: Sequence[Ran], missing: Iterable[str]) -> Self:
        """A rank's part of the record, with the arrays of its two measured epochs."""
        timed = next(one for one in ran if one.epoch.role == "timed")
        arrays: dict[str, NDArray[Any]] = {
            "step_s": timed.times.step_s,
            "stall_s": timed.times.stall_s,
            "loss": timed.losses.numpy(),
            "curve_loss": np.concatenate([one.losses.numpy() for one in ran]),
            "curve_step_s": np.concatenate([one.times.step_s for one in ran]),
            "curve_lr": np.array([rate for one in ran for rate in one.rates]),
        }
        found = next((one.split_phases for one in ran if one.split_phases), None)
        if found:
            arrays["parts_s"] = found.parts
        if found and len(found.duration_s):
            arrays |= {
                "collective_start_s": found.start_s,
                "collective_s": found.duration_s,
                "collective_served_s": found.served_s,
            }
        return cls(rank, arrays, tuple(f"rank {rank.rank}: {words}" for words in missing))


class ProgressWriter:
    """Rank 0 says how far its cell is, between epochs; the others nothing."""

    def __init__(self, folder: AttemptFolder, rank: int, epochs: int) -> None:
        self._file = folder.progress if rank == 0 else None
        self._said = Progress(epoch=0, epochs=epochs)

    def begin(self, role: str, epoch: int | None = None, last_s: float | None = None) -> None:
        """An epoch (from 1) begins, or without one what comes after training; `last_s` as known."""
        self._say(
            epoch=self._said.epoch if epoch is None else epoch,
            role=role,
            since=utc_now(),
            last_s=self._said.last_s if last_s is None else last_s,
            iteration=0,
            iterations=0,
        )

    def counted(self, batches: Iterable[Batch], iterations: int) -> Iterator[Batch]:
        """The batches, and now and then a word on how many: for epochs that are not measured."""
        said_s = time.monotonic()
        for number, batch in enumerate(batches):
            if time.monotonic() - said_s > SAY_S:
                said_s = time.monotonic()
                self._say(iteration=number, iterations=iterations)
            yield batch

    def _say(self, **changes: Any) -> None:
        self._said = msgspec.structs.replace(self._said, **changes)
        if self._file is not None:
            write_whole(self._file, encode(self._said))


class Common(NamedTuple):
    """What is told once for all ranks of a cell."""

    model: Model
    facts: Facts
    probe: Probe | None
    quantized: Quantized | None


def write_record(
    folder: AttemptFolder, file: CellFile, everyone: list[Measured], common: Common
) -> None:
    """Write the arrays, then the record: where there is a record, everything is there.

    Raises:
        InvalidRecordError: what was measured cannot be believed.
    """
    cell = file.cell
    attempt = msgspec.json.decode(folder.about.read_bytes(), type=Attempt)
    ranks = tuple(measured.rank for measured in everyone)
    hosts = tuple(dict.fromkeys(rank.host for rank in ranks))
    arrays = stacked([measured.arrays for measured in everyone])
    record = Record(
        cell=cell,
        slug=cell.slug,
        attempt=msgspec.structs.replace(attempt, hosts=hosts, ended=utc_now()),
        outcome=Outcome.OK,
        model=common.model,
        facts=common.facts,
        ranks=ranks,
        exchange=exchange_of(arrays.get("collective_served_s")),
        probe=common.probe,
        quantized=common.quantized,
    )
    text = encode(record)
    decode(text, str(folder.record))  # a reader's checks, while the log still tells why
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]  # an option of its own is a bool
    write_whole(folder.iterations, content.getvalue())
    write_whole(folder.record, text)


def stacked(each: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The ranks' arrays by name, rank first; those whose lengths differ are left out."""
    names = [name for name in each[0] if len({arrays[name].shape for arrays in each}) == 1]
    return {name: np.stack([arrays[name] for arrays in each]) for name in names}


def exchange_of(duration_s: NDArray[np.float64] | None) -> Exchange | None:
    """Waiting for the late rank, and the rest: from an array (ranks, collectives) of seconds."""
    if duration_s is None or len(duration_s) < 2:
        return None
    least, most = duration_s.min(axis=0), duration_s.max(axis=0)
    return Exchange(
        collectives=duration_s.shape[1],
        skew_s=float((most - least).sum()),
        net_s=float(least.sum()),
    )
