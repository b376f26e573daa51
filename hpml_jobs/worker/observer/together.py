"""The epochs of ranks that train together: an epoch begins when its last rank begins it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from hpml_jobs.core.formulas import closure
from hpml_jobs.core.measurements import (
    Communication,
    Epoch,
    IterationPhases,
    Phases,
    Role,
)
from hpml_jobs.core.outliers import slow_iterations
from hpml_jobs.worker.instruments.summary import step_percentiles
from hpml_jobs.worker.results import Arrays, RankResult

if TYPE_CHECKING:
    from hpml_jobs.worker.instruments.timing import Seconds

Timed = TypeVar("Timed", Phases, Communication)

COLUMNS = IterationPhases._fields
ADDING = 6
"""So many of them add up to the iteration."""

OF_MESSAGES = (
    "collective_start_s",
    "collective_s",
    "collective_served_s",
    "collective_exposed_s",
)
"""The arrays with the times of each message."""

SAMPLES = {Role.TIMED: "samples", Role.INSTRUMENTED: "parts_samples"}
"""The array with the samples of each iteration, which only the processes of a script write."""


def begin_together(results: Sequence[RankResult]) -> list[RankResult]:
    """Return the results without the waits of ranks that began an epoch before the last one.

    Such a rank waits in its first iteration, e.g. for one that tests between two epochs. Ranks that
    train together end that iteration and the epoch together: by so much as it waits, both are
    longer than on the rank that begins last.
    """
    for role in SAMPLES:
        results = _begin_together(results, role)
    return [
        result._replace(arrays=_without_samples(result.arrays)) for result in results
    ]


def _without_samples(arrays: Arrays) -> Arrays:
    return {
        name: array for name, array in arrays.items() if name not in SAMPLES.values()
    }


def _begin_together(results: Sequence[RankResult], role: Role) -> Sequence[RankResult]:
    epochs = [epoch for result in results if (epoch := result.rank.epoch(role))]
    if len(epochs) < len(results):
        return results
    last = min(results, key=lambda result: _steps_s(result.arrays, role)[0]).arrays
    shortest_s = min(epoch.epoch_s for epoch in epochs)
    return [
        _later(result, epoch, last, shortest_s)
        for result, epoch in zip(results, epochs, strict=True)
    ]


def _steps_s(arrays: Arrays, role: Role) -> "Seconds":
    """Return the times of the iterations of an epoch."""
    if role is Role.TIMED:
        return arrays["step_s"]
    seconds: Seconds = arrays["parts_s"][:, :ADDING].sum(axis=1)
    return seconds


def _later(
    result: RankResult, epoch: Epoch, last: Arrays, shortest_s: float
) -> RankResult:
    """Return the result of a rank whose epoch begins when the last rank begins it.

    `last` are the arrays of that rank, `shortest_s` is the shortest epoch.
    """
    rank, arrays, role = result.rank, result.arrays, epoch.role
    step_s = _steps_s(arrays, role).copy()
    longer_s = float(step_s[0] - _steps_s(last, role)[0])
    wait_s = min(longer_s, epoch.epoch_s - shortest_s)
    if wait_s <= 0:
        return result
    step_s[0] -= wait_s
    epoch_s = epoch.epoch_s - wait_s
    phases, communication = epoch.phases, rank.communication
    stall_s, changed = arrays["stall_s"], {"step_s": step_s}
    if phases:
        stall_s = arrays["parts_s"][:, COLUMNS.index("stall_s")]
        changed = _nearer(arrays, last, wait_s / longer_s)
        difference_s = arrays["parts_s"][0] - changed["parts_s"][0]
        less_s = dict(zip(COLUMNS, difference_s.tolist(), strict=True))
        phases = _without(phases, less_s | {"other_s": less_s["h2d_s"]})
        total = less_s | {"total_s": less_s["comm_total_s"]}
        communication = communication and _without(communication, total)
    epoch = msgspec.structs.replace(
        epoch,
        epoch_s=epoch_s,
        stall_s=min(epoch.stall_s, epoch_s),
        steps=step_percentiles(step_s, arrays[SAMPLES[role]].tolist()),
        slow=slow_iterations(step_s.tolist(), stall_s.tolist()),
        phases=phases,
        closure=closure(epoch_s, phases.parts_s) if phases else None,
        started_s=(epoch.started_s or 0.0) + wait_s,
    )
    epochs = tuple(epoch if other.role is role else other for other in rank.epochs)
    rank = msgspec.structs.replace(rank, epochs=epochs, communication=communication)
    return result._replace(rank=rank, arrays=arrays | changed)


def _nearer(arrays: Arrays, last: Arrays, share: float) -> Arrays:
    """Return the arrays whose first iteration is nearer to that of the last rank, by a share."""

    def nearer(name: str, number: int) -> "Seconds":
        values = arrays[name].copy()
        values[:number] -= share * (values[:number] - last[name][:number])
        return values

    changed = {"parts_s": nearer("parts_s", 1)}
    number, of_last = (
        int(np.sum(of_rank.get("collective_iteration", np.ones(0)) == 0))
        for of_rank in (arrays, last)
    )
    if number == of_last > 0:
        changed |= {name: nearer(name, number) for name in OF_MESSAGES}
    return changed


def _without(value: Timed, less_s: Mapping[str, float]) -> Timed:
    """Return phases or communication with seconds taken off its fields."""
    fields = {name: getattr(value, name, None) for name in less_s}
    changes = {
        n: max(0.0, seconds - less_s[n]) for n, seconds in fields.items() if seconds
    }
    return msgspec.structs.replace(value, **changes)
