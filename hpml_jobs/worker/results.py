"""What rank 0 writes: progress.json between epochs, then iterations.npz and record.json."""

import io
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from hpml_jobs.core.cell import CellFile, Outcome
from hpml_jobs.core.collective_times import (
    KINDS,
    PURPOSES,
    Begins,
    begins_of,
    paired,
    service_s,
)
from hpml_jobs.core.measurements import Exchange, Purpose, Role, Stage
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Attempt, Facts, Model, Record
from hpml_jobs.core.validation import decode
from hpml_jobs.study.cell_folder import AttemptFolder, Progress, utc_now
from hpml_jobs.study.files import encode, write_whole

if TYPE_CHECKING:  # records are also merged where nothing trains
    from hpml_jobs.worker.epochs import EpochResult
    from hpml_jobs.worker.instruments.collectives import Ledger
    from hpml_jobs.worker.instruments.phases import EpochPhases
    from hpml_jobs.worker.instruments.timing import IterationTimes
    from hpml_jobs.worker.process_group import ParallelStrategy

Arrays = dict[str, NDArray[Any]]

Batch = TypeVar("Batch")

INTERVAL_S = 2.0
"""Seconds between two reports inside an epoch that is not measured."""


class ProgressWriter:
    """Writes the progress of a cell; on all ranks but 0 it writes nothing."""

    def __init__(self, folder: AttemptFolder, rank: int, epochs: int) -> None:
        self._file = folder.progress if rank == 0 else None
        self._progress = Progress(epoch=0, epochs=epochs)

    def begin(
        self, role: Stage, epoch: int | None = None, last_s: float | None = None
    ) -> None:
        """Report that an epoch (from 1) begins, or without a number a step after training.

        `last_s` is the duration of the previous epoch in seconds; None leaves the last one known.
        """
        self._write(
            epoch=self._progress.epoch if epoch is None else epoch,
            role=role,
            since=utc_now(),
            last_s=self._progress.last_s if last_s is None else last_s,
            iteration=0,
            iterations=0,
        )

    def count_batches(
        self, batches: Iterable[Batch], iterations: int
    ) -> Iterator[Batch]:
        """Yield the batches and report their number every `INTERVAL_S`; not for measured epochs."""
        written_s = time.monotonic()
        for number, batch in enumerate(batches):
            if time.monotonic() - written_s > INTERVAL_S:
                written_s = time.monotonic()
                self._write(iteration=number, iterations=iterations)
            yield batch

    def _write(self, **changes: Any) -> None:
        self._progress = msgspec.structs.replace(self._progress, **changes)
        if self._file is not None:
            write_whole(self._file, encode(self._progress), parents=False)


class RankResult(NamedTuple):
    """The results that a rank sends to rank 0: its part of the record, and its arrays by name.

    docs/formulas.md describes the arrays. `missing` has a reason for each value that could not be
    measured.
    """

    rank: Rank
    arrays: Arrays
    missing: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, rank: Rank, results: Sequence["EpochResult"], missing: Iterable[str]
    ) -> Self:
        """Put together a rank's part of the record and the arrays of its epochs."""
        timed = next(result for result in results if result.epoch.role is Role.TIMED)
        arrays = timed_arrays(timed.times) | {
            "loss": timed.losses.numpy(),
            "curve_loss": np.concatenate([result.losses.numpy() for result in results]),
            "curve_step_s": np.concatenate([result.times.step_s for result in results]),
            "curve_lr": np.concatenate([result.rates for result in results]),
        }
        for result in results:
            if result.phases and result.ledger:
                arrays |= instrumented_arrays(result.phases, result.ledger)
        reasons = tuple(f"rank {rank.rank}: {reason}" for reason in missing)
        return cls(rank, arrays, reasons)


def timed_arrays(times: "IterationTimes") -> Arrays:
    """Return the arrays of the timed epoch on one rank."""
    return {
        "step_s": times.step_s,
        "stall_s": times.stall_s,
        "last_stall_s": np.array(times.last_stall_s),
    }


def instrumented_arrays(phases: "EpochPhases", ledger: "Ledger") -> Arrays:
    """Return the arrays of the instrumented epoch on one rank."""
    arrays: Arrays = {
        "parts_s": phases.iterations_s,
        "parts_last_stall_s": np.array(phases.last_stall_s),
    }
    entries = ledger.collectives
    if entries:
        arrays |= {
            "collective_start_s": phases.start_s,
            "collective_s": phases.duration_s,
            "collective_served_s": phases.served_s,
            "collective_exposed_s": phases.exposed_s,
            "collective_iteration": np.array(
                [entry.iteration for entry in entries], np.int32
            ),
            "collective_bytes": np.array([entry.bytes for entry in entries], np.int64),
            "collective_kind": _indices(KINDS, [entry.kind for entry in entries]),
            "collective_purpose": _indices(
                PURPOSES, [entry.purpose for entry in entries]
            ),
        }
    return arrays


def _indices(names: Sequence[str], values: Iterable[str]) -> NDArray[np.int8]:
    return np.array([names.index(value) for value in values], np.int8)


class SharedResult(NamedTuple):
    """The parts of a record that exist once per cell; `parts` are those of features, by field."""

    model: Model
    facts: Facts
    parts: Mapping[str, Any] = {}


def write_record(
    strategy: "ParallelStrategy",
    folder: AttemptFolder,
    file: CellFile,
    result: RankResult,
    shared: SharedResult,
) -> None:
    """Gather the ranks' results; rank 0 writes the record.

    Raises:
        InvalidRecordError: the measured values are not valid.
    """
    results = strategy.gather(result)
    if results is not None:
        write_gathered(folder, file, results, shared)


def write_gathered(
    folder: AttemptFolder,
    file: CellFile,
    results: Sequence[RankResult],
    shared: SharedResult,
) -> None:
    """Write the arrays of all ranks, then the record, to the attempt's folder.

    So a cell with a record is complete.

    Raises:
        InvalidRecordError: the measured values are not valid.
    """
    missing = shared.facts.missing
    for result in results:
        missing += result.missing
    attempt = msgspec.json.decode(folder.about.read_bytes(), type=Attempt)
    ranks = tuple(result.rank for result in results)
    hosts = tuple(dict.fromkeys(rank.host for rank in ranks))
    arrays = stack_ranks([result.arrays for result in results])
    if "collective_kind" in arrays:
        arrays |= {"kinds": np.array(KINDS), "purposes": np.array(PURPOSES)}
    exchange = split_exchange(
        arrays, begins_of(ranks, meet=file.cell.origin.ranks_meet)
    )
    if exchange and exchange.exchange_s is None:
        missing += (
            "exchange and waiting: the collectives have a root, and clocks may differ",
        )
    record = Record(
        cell=file.cell,
        slug=folder.cell_folder.name,
        attempt=msgspec.structs.replace(attempt, hosts=hosts, ended=utc_now()),
        outcome=Outcome.OK,
        model=shared.model,
        facts=msgspec.structs.replace(shared.facts, missing=missing),
        ranks=ranks,
        exchange=exchange,
    )
    record = msgspec.structs.replace(record, **shared.parts)
    text = encode(record)
    # a reader's checks, while the log still shows the reason
    decode(text, str(folder.record))
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]  # savez has an option that is a bool
    write_whole(folder.iterations, content.getvalue(), parents=False)
    write_whole(folder.record, text, parents=False)


def stack_ranks(rank_arrays: Sequence[Arrays]) -> Arrays:
    """Stack each array that all ranks have in one shape over them, (ranks, …)."""
    stacked = {}
    for name in rank_arrays[0]:
        of_ranks = [arrays[name] for arrays in rank_arrays if name in arrays]
        shapes = {array.shape for array in of_ranks}
        if len(of_ranks) == len(rank_arrays) and len(shapes) == 1:
            stacked[name] = np.stack(of_ranks)
    return stacked


def split_exchange(arrays: Arrays, begins: Begins | None) -> Exchange | None:
    """Split the time of collectives into waiting for late ranks and the rest.

    `arrays` are those of iterations.npz, of all ranks; `begins` is when each began the epoch, if
    that is known. Rank 0 is the root of every rooted collective. Return None without collectives
    or with a single rank, and where the ranks have other collectives.
    """
    if len(arrays.get("collective_served_s", ())) < 2:
        return None
    collectives = paired(arrays)
    if collectives is None:
        return None
    served_s, exposed_s = collectives.served_s, collectives.exposed_s
    service = service_s(collectives, arrays["parts_s"], begins)
    least, most = served_s.min(axis=0), served_s.max(axis=0)
    is_rooted = collectives.is_rooted
    is_unrooted = ~is_rooted
    is_gradient = is_unrooted & (
        collectives.purpose == PURPOSES.index(Purpose.GRADIENTS)
    )
    exchange_s = None
    if service is not None:
        of_slowest_s = np.minimum(service, exposed_s.max(axis=0))
        exchange_s = float(
            np.where(is_rooted, of_slowest_s, exposed_s.min(axis=0)).sum()
        )

    def total(seconds: NDArray[np.float64], where: NDArray[np.bool_]) -> float | None:
        return float(seconds[where].sum()) if where.any() else None

    return Exchange(
        collectives=served_s.shape[1],
        skew_s=float((most - least).sum()),
        net_s=float(least.sum()),
        exchange_s=exchange_s,
        all_reduce_skew_s=total(most - least, is_unrooted),
        all_reduce_net_s=total(least, is_unrooted),
        gradients_net_s=total(least if service is None else service, is_gradient),
        rooted_s=total(served_s[0], is_rooted),
        service_s=None if service is None else float(service.sum()),
    )
