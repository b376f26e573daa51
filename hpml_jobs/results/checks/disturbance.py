"""Checks for what disturbed the epochs of a cell: other programs, pauses."""

from collections.abc import Mapping, Sequence

from hpml_jobs.core.check_result import TIMES, Affected, CheckResult, Level, Tier
from hpml_jobs.core.measurements import Role, Step
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import Share, counted, listed, percent_text
from hpml_jobs.results import disturbance
from hpml_jobs.results.checks.hardware import OVERSUBSCRIBED
from hpml_jobs.results.checks.result import Observation, check, limit_text, names
from hpml_jobs.results.disturbance import OutsideCause
from hpml_jobs.results.noise import overhead_error
from hpml_jobs.results.statistics import is_above

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
    of its medians if it has another run. Where much of the timed epoch was withheld, its time is
    not the cell's: a failure. Other jobs on the cell's nodes are only in the list.

    Limit: {disturbance.FOREIGN_LIMIT} of the CPU time of the cell's CPUs; a failure above
    {disturbance.WITHHELD_MOST} of the timed epoch
    Fix: {MEASURE_AGAIN}, or {WHOLE_NODES}
    """
    causes = _outside_causes(record)
    return [causes, _other_jobs(record, causes)]


def _outside_causes(record: Record) -> Observation | None:
    measured = [role for role in AFFECTED_BY if disturbance.is_measured(record, role)]
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
    used = f"other processes used {percent_text(max(0.0, share))} of the cell's CPU time at most"
    return Observation(True, f"{used} (limit {disturbance.FOREIGN_LIMIT})")


def _causes_text(causes: Mapping[Role | Step, Sequence[OutsideCause]]) -> str:
    """Return the causes in the first epoch, and all that were disturbed."""
    first = "; ".join(cause.text for cause in next(iter(causes.values())))
    return f"{first}, during {listed(map(_where, causes))}"


def _where(role: Role | Step) -> str:
    """Return an epoch or a step in a sentence."""
    if role is Role.UNSYNCED:
        return "the epoch without exchange"
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
    of_longer = share / (1 + share)
    if share < 0:
        longer = Role.TIMED
        other = "instrumented"
        by = -share / (1 + share)
        of_longer = -share
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
