"""The epochs of ranks that train together: an epoch begins when its last rank begins it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from hpml_jobs.core.collective_times import KINDS, PURPOSES
from hpml_jobs.core.formulas import closure
from hpml_jobs.core.measurements import Communication, IterationPhases, Phases, Role
from hpml_jobs.core.outliers import slow_iterations
from hpml_jobs.core.rank import Rank
from hpml_jobs.worker.instruments.summary import step_percentiles
from hpml_jobs.worker.results import Arrays, RankResult

if TYPE_CHECKING:
    from hpml_jobs.worker.instruments.timing import Seconds

Timed = TypeVar("Timed", Phases, Communication)

COLUMNS = IterationPhases._fields
ADDING = 6
"""So many of them add up to the iteration."""

WAITING = {
    "comm_exposed_s": None,
    "comm_forward_s": "forward_s",
    "comm_optimizer_s": "optimizer_s",
}
"""The columns in which a rank waits for another one, and the phase that each is a part of."""

SAMPLES = {Role.TIMED: "samples", Role.INSTRUMENTED: "parts_samples"}
"""The array with the samples of each iteration, which only the processes of a script write."""


def begin_together(results: Sequence[RankResult]) -> list[RankResult]:
    """Return the results without the waits of ranks that began an epoch before the last one.

    Such a rank waits in its first iteration, e.g. for one that tests between two epochs. Longer
    than that iteration it does not wait: such ranks do not train together, and stay as they are.
    """
    together = [*results]
    for role in SAMPLES:
        waits_s = early_s([result.rank for result in together], role)
        together = [
            _later(*of_rank, role) for of_rank in zip(together, waits_s, strict=True)
        ]
    return [
        result._replace(arrays=_without_samples(result.arrays)) for result in together
    ]


def _without_samples(arrays: Arrays) -> Arrays:
    return {
        name: array for name, array in arrays.items() if name not in SAMPLES.values()
    }


def early_s(ranks: Sequence[Rank], role: Role) -> list[float]:
    """Return how long before the last one each rank began an epoch, in seconds.

    The processes of a host have one clock. Hosts are compared by their last end, because ranks that
    train together end together.
    """
    starts = []
    begins_s: dict[str, float] = {}
    ends_s: dict[str, float] = {}
    for rank in ranks:
        epoch = rank.epoch(role)
        if epoch is None or epoch.started_s is None:
            return [0.0] * len(ranks)
        begin_s = epoch.started_s
        end_s = begin_s + epoch.epoch_s
        starts.append((rank.host, begin_s))
        begins_s[rank.host] = max(begin_s, begins_s.get(rank.host, begin_s))
        ends_s[rank.host] = max(end_s, ends_s.get(rank.host, end_s))
    epoch_s = min(ends_s[host] - begins_s[host] for host in begins_s)
    return [ends_s[host] - epoch_s - begin_s for host, begin_s in starts]


def _later(result: RankResult, wait_s: float, role: Role) -> RankResult:
    """Return the result of a rank whose epoch begins later by a wait in its first iteration."""
    rank, epoch, arrays = result.rank, result.rank.epoch(role), result.arrays
    if epoch is None or SAMPLES[role] not in arrays:
        return result
    is_timed = role is Role.TIMED
    step_s = arrays["step_s"] if is_timed else arrays["parts_s"][:, :ADDING].sum(axis=1)
    stall_s = (
        arrays["stall_s"]
        if is_timed
        else arrays["parts_s"][:, COLUMNS.index("stall_s")]
    )
    if not 0 < wait_s < step_s[0]:
        return result
    step_s, changed = step_s.copy(), {}
    step_s[0] -= wait_s
    epoch_s = epoch.epoch_s - wait_s
    phases, communication = epoch.phases, rank.communication
    if is_timed:
        changed["step_s"] = step_s
    elif phases:
        phases, communication, changed = _split_later(
            phases, communication, arrays, wait_s
        )
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


def _split_later(
    phases: Phases, communication: Communication | None, arrays: Arrays, wait_s: float
) -> tuple[Phases, Communication | None, Arrays]:
    """Return phases and communication without a wait, and the arrays that change."""
    less_s = _wait_by_column(arrays["parts_s"][0], wait_s)
    parts_s = arrays["parts_s"].copy()
    parts_s[0] -= [less_s[name] for name in COLUMNS]
    changed: Arrays = {"parts_s": parts_s}
    if communication:
        total = _without(communication, {"total_s": less_s["comm_total_s"], **less_s})
        communication, of_messages = _messages_without(total, arrays, wait_s)
        changed |= of_messages
    return _without(phases, less_s), communication, changed


def _wait_by_column(first: "Seconds", wait_s: float) -> dict[str, float]:
    """Return the seconds of a wait that are in each column of the first iteration.

    Most of it was in the longest communication, unless that is too short; the rest was in the
    longest phases.
    """
    parts_s = dict(zip(COLUMNS, first.tolist(), strict=True))
    less_s = dict.fromkeys(COLUMNS, 0.0)
    column = max(WAITING, key=parts_s.__getitem__)
    left_s = wait_s
    if _is_in(parts_s[column], wait_s):
        content = max(("gradients_s", "buffers_s"), key=parts_s.__getitem__)
        for name in filter(None, (column, WAITING[column], "comm_total_s", content)):
            less_s[name] = min(wait_s, parts_s[column], parts_s[name])
        left_s -= less_s[column]
    for name in sorted(COLUMNS[:ADDING], key=parts_s.__getitem__, reverse=True):
        rest_s = min(left_s, parts_s[name] - less_s[name])
        less_s[name] += rest_s
        left_s -= rest_s
    return less_s


def _is_in(seconds: Any, wait_s: float) -> Any:
    """Return whether something is long enough to have most of a wait in it."""
    return seconds > wait_s / 2


def _without(value: Timed, less_s: Mapping[str, float]) -> Timed:
    """Return phases or communication with the seconds of a wait taken off its fields."""
    fields = {name: getattr(value, name, None) for name in less_s}
    changes = {
        n: max(0.0, seconds - less_s[n]) for n, seconds in fields.items() if seconds
    }
    return msgspec.structs.replace(value, **changes)


def _messages_without(
    communication: Communication, arrays: Arrays, wait_s: float
) -> tuple[Communication, Arrays]:
    """Return the communication and the arrays of its messages without a wait in the first ones.

    The wait ends with the message that waits. Each is shorter by what of it was during the wait; of
    the messages in a queue the first is served meanwhile.
    """
    if "collective_s" not in arrays:
        return communication, {}
    names = ("collective_s", "collective_served_s", "collective_exposed_s")
    durations_s, served_s, exposed_s = (arrays[name].copy() for name in names)
    is_first = arrays["collective_iteration"] == 0
    may_wait = is_first & _is_in(durations_s, wait_s)
    less_s = np.zeros_like(durations_s)
    if may_wait.any():
        first = int(np.argmax(np.where(may_wait, served_s, -1.0)))
        starts_s = arrays["collective_start_s"]
        ends_s = starts_s + durations_s
        until_s = np.minimum(ends_s, ends_s[first])
        during_s = until_s - np.maximum(starts_s, ends_s[first] - wait_s)
        less_s = np.where(is_first, during_s.clip(0), 0)
        durations_s -= less_s
        served_s[first] = max(0.0, served_s[first] - wait_s)
        exposed_s[first] = max(0.0, exposed_s[first] - wait_s)
    of_key: Counter[tuple[int, int, int]] = Counter()
    keys = (
        arrays[f"collective_{name}"].tolist() for name in ("kind", "purpose", "bytes")
    )
    for key, seconds in zip(zip(*keys, strict=True), less_s.tolist(), strict=True):
        of_key[key] += seconds
    messages = []
    for message in communication.messages:
        key = KINDS.index(message.kind), PURPOSES.index(message.purpose), message.bytes
        busy_s = max(0.0, message.busy_s - of_key[key])
        messages.append(msgspec.structs.replace(message, busy_s=busy_s))
    changed = dict(zip(names, (durations_s, served_s, exposed_s), strict=True))
    return msgspec.structs.replace(communication, messages=tuple(messages)), changed
