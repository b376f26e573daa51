"""Checks for what disturbed the epochs of a cell: other programs, pauses, cells beside it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from hpml_jobs.core.check_result import TIMES, Affected, CheckResult, Level, Tier
from hpml_jobs.core.measurements import Role, Step
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import Share, counted, listed, percent_text
from hpml_jobs.results import disturbance
from hpml_jobs.results.checks.hardware import OVERSUBSCRIBED
from hpml_jobs.results.checks.result import Observation, check, limit_text, names
from hpml_jobs.results.disturbance import OutsideCause
from hpml_jobs.results.statistics import is_above, overhead_error

OVERHEAD_LIMIT = Share(0.05)
MEASURE_AGAIN = "run it again (resubmit --disturbed)"
WHOLE_NODES = "use whole nodes (cluster.isolate=exclusive)"

AFFECTED_BY: dict[Role | Step, frozenset[Affected]] = {
    Role.TIMED: frozenset({Affected.TIME}),
    Role.INSTRUMENTED: frozenset({Affected.SPLIT, Affected.BANDWIDTH}),
    Role.UNSYNCED: frozenset({Affected.SPLIT}),
    Step.MICROBENCHMARK: frozenset({Affected.BANDWIDTH}),
}
"""The numbers that a disturbed epoch or step makes doubtful; of the unsynced one the cost of
communication, of the microbenchmark what is compared with it."""

MEASURING, LIMITING = (
    {Role.TIMED, Role.INSTRUMENTED},
    {Role.UNSYNCED, Step.MICROBENCHMARK},
)
"""In which the numbers of Tables 1 to 3 are measured, and which limit what these mean."""

DISTURBED = "disturbed"


@check(DISTURBED, Level.WARN, Tier.NUMBER, *TIMES)
def epochs_disturbed(record: Record) -> list[Observation | None]:
    """Something outside of the cell slowed down an epoch or a step after it: other processes on its
    CPUs, a stop (SIGSTOP, `scontrol suspend`), a CPU quota, a hypervisor. A row leaves the run out
    of its medians if it has a faster run. Where much of the timed epoch was withheld, its time is
    not the cell's: a failure. Other jobs on the cell's nodes are only in the list.

    Limit: {disturbance.FOREIGN_LIMIT} of the CPU time of the cell's CPUs; a failure above
    {disturbance.WITHHELD_MOST} of the timed epoch
    Fix: {MEASURE_AGAIN}, or {WHOLE_NODES}
    """
    causes = _outside_causes(record)
    return [causes, _other_jobs(record, causes)]


def _outside_causes(record: Record) -> Observation | None:
    measured = [role for role in AFFECTED_BY if disturbance.host_cpus(record, role)]
    disturbed = {
        role: causes
        for role in measured
        if (causes := disturbance.outside_causes(record, role))
    }
    if not measured:
        return None
    if not disturbed:
        return _undisturbed(record, measured)
    measuring = disturbed.keys() & MEASURING
    affecting = measuring or disturbed.keys() & LIMITING
    tier = Tier.TABLE if affecting else Tier.LIST
    is_withheld = disturbance.withheld_share(record) > disturbance.WITHHELD_MOST
    on_slurm = record.attempt.neighbours is not None
    return Observation(
        False,
        _causes_text(disturbed),
        f"{MEASURE_AGAIN}, or {WHOLE_NODES}" if on_slurm else MEASURE_AGAIN,
        level=Level.FAIL if is_withheld else None,
        tier=None if measuring else tier,
        affects=frozenset().union(*(AFFECTED_BY[role] for role in affecting)),
    )


def _undisturbed(record: Record, measured: Sequence[Role | Step]) -> Observation:
    """Return the largest share of the CPU time that other processes used, if that is known."""
    shares = [disturbance.foreign_cpu_share(record, role) for role in measured]
    share = max((share for share in shares if share is not None), default=None)
    if share is None:
        return Observation(True, "no process was stopped")
    used = f"other programs used {percent_text(max(0.0, share))} of the cell's CPU time at most"
    return Observation(True, f"{used} (limit {disturbance.FOREIGN_LIMIT})")


def _causes_text(causes: Mapping[Role | Step, Sequence[OutsideCause]]) -> str:
    """Return the causes in the first epoch, and all that were disturbed."""
    first = "; ".join(cause.text for cause in next(iter(causes.values())))
    return f"{first}, during {listed(map(epoch_words, causes))}"


def epoch_words(role: Role | Step) -> str:
    """Return an epoch or a step in a sentence."""
    if role is Role.UNSYNCED:
        return "the epoch without communication"
    return f"the {role.value} epoch" if isinstance(role, Role) else f"the {role.value}"


def _other_jobs(record: Record, causes: Observation | None) -> Observation | None:
    neighbours = record.attempt.neighbours
    if neighbours is None:
        return None
    if not neighbours.jobs:  # which alone does not say that nothing disturbed the cell
        return causes and Observation(
            True, "no other job on its nodes at its start and its end"
        )
    beside = f"; {causes.text}" if causes and causes.holds else ""
    return Observation(
        False,
        f"{counted(neighbours.jobs, 'other job')} on its nodes at its start or its end, "
        f"{neighbours.same_user} of them of the same user (users: {names(neighbours.users)})"
        f"{beside}",
        WHOLE_NODES,
        tier=Tier.LIST,
    )


@check("overhead", Level.WARN, Tier.TABLE, *TIMES, explained_by={OVERSUBSCRIBED})
def epochs_differ(record: Record) -> Observation | None:
    """The timed and the instrumented epoch differ: the instruments take time, the machine varies,
    or the longer one was disturbed. Tables 2 and 3 are of another epoch than Table 1.

    Limit: {OVERHEAD_LIMIT} between the epochs {LOWER_END}
    Fix: {MEASURE_AGAIN}; if it stays, use a larger batch= or a larger model
    """
    share = record.overhead
    if share is None:
        return None
    longer = Role.INSTRUMENTED
    other = "timed"
    by = share
    if share < 0:
        longer = Role.TIMED
        other = "instrumented"
        by = -share / (1 + share)
    of_longer = by / (1 + by)
    if disturbance.explains(record, of_longer, longer):  # that is reported already
        return None
    error = overhead_error(record)
    share = abs(share)
    limit = limit_text(OVERHEAD_LIMIT, error)
    text = f"the {longer} epoch is {percent_text(by)} longer than the {other} one ({limit})"
    if not is_above(share, error, OVERHEAD_LIMIT):
        return Observation(True, text, share=share, about=longer)
    # the timed epoch has no instruments in it
    affects = None if longer is Role.TIMED else AFFECTED_BY[Role.INSTRUMENTED]
    return Observation(False, text, affects=affects, share=share, about=longer)


DISTURBANCES = {check.name for check in (epochs_disturbed, epochs_differ)}
"""Checks of cells that are worth measuring again."""


def is_worth_repeating(result: CheckResult) -> bool:
    """Return whether a cell with this result is worth measuring again.

    What `disturbed` only lists left the numbers alone: other jobs.
    """
    is_listed = result.check == DISTURBED and result.tier is Tier.LIST
    is_disturbed = result.check in DISTURBANCES and result.level is not Level.PASS
    return is_disturbed and not is_listed


OVERLAP_S = 1


class Stay(NamedTuple):
    """When a cell ran, and where."""

    slug: str
    started: datetime
    ended: datetime
    hosts: frozenset[str]
    uuids: frozenset[str]

    def seconds_with(self, other: "Stay") -> float:
        """Return how long both ran."""
        both = min(self.ended, other.ended) - max(self.started, other.started)
        return both.total_seconds()


class Concurrent(NamedTuple):
    """The stay of a cell, and the others that ran at the same time, in the study's order."""

    stay: Stay
    others: Sequence[Stay]


def concurrent_cells(records: Iterable[Record]) -> dict[str, Concurrent]:
    """Return by slug which measured cells of a study ran beside which."""
    stays = []
    for record in records:
        if span := record.attempt.span:
            hosts = {*record.attempt.hosts, *(rank.host for rank in record.ranks)}
            uuids = {uuid for rank in record.ranks for uuid in rank.device_uuids}
            where = frozenset(hosts), frozenset(uuids)
            stays.append(Stay(record.slug, *span, *where))
    beside = {}
    for stay in stays:
        before = [other for other in stays if other.started < stay.ended]
        others = [o for o in before if o.ended > stay.started and o is not stay]
        beside[stay.slug] = Concurrent(stay, others)
    return beside


@check("overlap", Level.WARN, Tier.NUMBER, *TIMES)
def overlapping_cells(
    record: Record, concurrent: Mapping[str, Concurrent]
) -> list[Observation | None]:
    """Another cell of the study ran on the same node at the same time: cells on one node slow each
    other down 1.5 to 3 times. Or it used the same GPUs: the time of neither is its own.

    Limit: {OVERLAP_S} s of overlap on a node, none on a GPU
    Fix: resubmit the cells with cluster.isolate=serial (rerun=true), or both cells (rerun=true)
    """
    of_cell = concurrent.get(record.slug)
    return [_on_nodes(*of_cell), _on_gpus(*of_cell)] if of_cell else []


def _on_nodes(stay: Stay, others: Sequence[Stay]) -> Observation | None:
    if not stay.hosts:
        return None
    near = [other for other in others if other.hosts & stay.hosts]
    beside = [other for other in near if stay.seconds_with(other) > OVERLAP_S]
    if not beside:
        hosts = names(sorted(stay.hosts))
        return Observation(True, f"no other cell of the study ran on {hosts}")
    shared = {host for other in beside for host in other.hosts & stay.hosts}
    seconds = max(map(stay.seconds_with, beside))
    slugs = names(other.slug for other in beside)
    return Observation(
        False,
        f"{slugs} ran on {names(sorted(shared))} for up to {seconds:.0f} s of it",
        "resubmit the cells with cluster.isolate=serial (rerun=true)",
    )


def _on_gpus(stay: Stay, others: Sequence[Stay]) -> Observation | None:
    if not stay.uuids:
        return None
    beside = [other.slug for other in others if other.uuids & stay.uuids]
    if not beside:
        gpus = counted(len(stay.uuids), "GPU")
        return Observation(True, f"no other cell of the study used its {gpus}")
    text = f"{names(beside)} used the same GPUs at the same time"
    return Observation(False, text, "resubmit both cells (rerun=true)")
