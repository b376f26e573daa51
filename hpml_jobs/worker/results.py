"""iterations.npz and record.json: the ranks' results put together and written by rank 0."""

import io
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.measurements import Exchange, Microbenchmark, Role
from hpml_jobs.core.quantization import Quantized
from hpml_jobs.core.record import Attempt, Facts, Model, Rank, Record
from hpml_jobs.core.validation import decode
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.attempt import AttemptFolder, utc_now
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.worker.epochs import EpochResult

Arrays = dict[str, NDArray[Any]]


class RankResult(NamedTuple):
    """The results that a rank sends to rank 0: its part of the record, and its arrays by name.

    Timed epoch, one value per iteration: `step_s`, `stall_s`, `loss`. Instrumented epoch: `parts_s`
    with shape (iterations, fields of `instruments.phases.IterationPhases`), and one value per
    collective of `collective_start_s` (since the batch of its iteration), `collective_s` and
    `collective_served_s` (without queueing behind other collectives). All epochs of training in a
    row, one value per iteration: `curve_loss`, `curve_step_s`, `curve_lr`. `missing` has a reason
    for each value that could not be measured.
    """

    rank: Rank
    arrays: Arrays
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, rank: Rank, results: Sequence[EpochResult], missing: Iterable[str]) -> Self:
        """Put together a rank's part of the record and the arrays of its epochs."""
        timed = next(result for result in results if result.epoch.role is Role.TIMED)
        arrays: Arrays = {
            "step_s": timed.times.step_s,
            "stall_s": timed.times.stall_s,
            "loss": timed.losses.numpy(),
            "curve_loss": np.concatenate([result.losses.numpy() for result in results]),
            "curve_step_s": np.concatenate([result.times.step_s for result in results]),
            "curve_lr": np.array([rate for result in results for rate in result.rates]),
        }
        phases = next((result.phases for result in results if result.phases), None)
        if phases:
            arrays["parts_s"] = phases.iterations_s
        if phases and len(phases.duration_s):
            arrays |= {
                "collective_start_s": phases.start_s,
                "collective_s": phases.duration_s,
                "collective_served_s": phases.served_s,
            }
        return cls(rank, arrays, tuple(f"rank {rank.rank}: {reason}" for reason in missing))


class SharedResult(NamedTuple):
    """The parts of a record that exist once per cell."""

    model: Model
    facts: Facts
    microbenchmark: Microbenchmark | None
    quantized: Quantized | None


def write_record(
    folder: AttemptFolder, file: CellFile, results: list[RankResult], shared: SharedResult
) -> None:
    """Write the arrays, then the record, so that a cell with a record is complete.

    Raises:
        InvalidRecordError: the measured values are not valid.
    """
    cell = file.cell
    attempt = msgspec.json.decode(folder.about.read_bytes(), type=Attempt)
    ranks = tuple(result.rank for result in results)
    hosts = tuple(dict.fromkeys(rank.host for rank in ranks))
    arrays = stack_ranks([result.arrays for result in results])
    record = Record(
        cell=cell,
        slug=cell.slug,
        attempt=msgspec.structs.replace(attempt, hosts=hosts, ended=utc_now()),
        outcome=Outcome.OK,
        model=shared.model,
        facts=shared.facts,
        ranks=ranks,
        exchange=skew_and_net_time(arrays.get("collective_served_s")),
        microbenchmark=shared.microbenchmark,
        quantized=shared.quantized,
    )
    text = encode(record)
    decode(text, str(folder.record))  # a reader's checks, while the log still shows the reason
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]  # savez has an option that is a bool
    write_whole(folder.iterations, content.getvalue())
    write_whole(folder.record, text)


def stack_ranks(rank_arrays: Sequence[Arrays]) -> Arrays:
    """Stack each array over the ranks, (ranks, …); arrays whose shapes differ are left out."""
    names = [
        name for name in rank_arrays[0] if len({arrays[name].shape for arrays in rank_arrays}) == 1
    ]
    return {name: np.stack([arrays[name] for arrays in rank_arrays]) for name in names}


def skew_and_net_time(duration_s: NDArray[np.float64] | None) -> Exchange | None:
    """Split collective times, shape (ranks, collectives), into waiting for the late rank and rest.

    Return None without collectives or with a single rank.
    """
    if duration_s is None or len(duration_s) < 2:
        return None
    least, most = duration_s.min(axis=0), duration_s.max(axis=0)
    return Exchange(
        collectives=duration_s.shape[1],
        skew_s=float((most - least).sum()),
        net_s=float(least.sum()),
    )
