"""Checks for what disturbed the epochs of a cell: other programs, pauses, slow iterations."""

from statistics import median

from hpml_jobs.checks.limits import OUTLIER_LIMIT, OVERHEAD_LIMIT
from hpml_jobs.checks.result import NAMED, Affected, Level, Observation, Tier, check
from hpml_jobs.core import disturbance
from hpml_jobs.core.disturbance import FOREIGN_LIMIT, RUN_QUEUE_LIMIT
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import counted, percent_text

MEASURE_AGAIN = "measure the cell again (hpml-jobs resubmit STUDY --disturbed)"

LIMIT = (
    f"other processes use {percent_text(FOREIGN_LIMIT)} of the CPU time of the cell's CPUs, no "
    f"process is stopped, CPU quotas withhold {percent_text(disturbance.THROTTLED_LIMIT)}, and a "
    f"rank waits for a CPU for {percent_text(RUN_QUEUE_LIMIT)} of the epoch where the cell has a "
    "CPU for each of its threads"
)


@check(
    "disturbed",
    Level.WARN,
    meaning="Something outside of the cell slowed down the timed epoch: other processes on its "
    "CPUs, a stop (SIGSTOP, `scontrol suspend`), a CPU quota, a hypervisor. A row leaves the run "
    "out of its medians if it has another run.",
    limit=LIMIT,
    remedy=MEASURE_AGAIN,
    tier=Tier.NUMBER,
    affects={Affected.TIME},
)
def timed_epoch_disturbed(record: Record) -> Observation | None:
    """Warn if an outside cause that was measured disturbed the timed epoch."""
    return _observe(record, Role.TIMED)


@check(
    "disturbed-split",
    Level.WARN,
    meaning="Something outside of the cell slowed down the instrumented epoch: its phases contain "
    "the disturbance.",
    limit=LIMIT,
    remedy=MEASURE_AGAIN,
    tier=Tier.NUMBER,
    affects={Affected.SPLIT, Affected.BANDWIDTH},
)
def instrumented_epoch_disturbed(record: Record) -> Observation | None:
    """Warn if an outside cause that was measured disturbed the instrumented epoch."""
    return _observe(record, Role.INSTRUMENTED)


@check(
    "disturbed-cost",
    Level.WARN,
    meaning="Something outside of the cell slowed down the epoch without gradient exchange: the "
    "cost of communication is too low.",
    limit=LIMIT,
    remedy=MEASURE_AGAIN,
    tier=Tier.TABLE,
    affects={Affected.SPLIT},
)
def unsynced_epoch_disturbed(record: Record) -> Observation | None:
    """Warn if an outside cause that was measured disturbed the epoch without exchange."""
    return _observe(record, Role.UNSYNCED)


def _observe(record: Record, role: Role) -> Observation | None:
    if not disturbance.is_measured(record, role):
        return None
    causes = disturbance.outside_causes(record, role)
    if causes:
        texts = "; ".join(cause.text for cause in causes)
        return Observation(False, f"{texts}, during the {role.value} epoch")
    share = disturbance.foreign_cpu_share(record, role)
    if share is None:
        return Observation(True, f"no process was stopped during the {role.value} epoch")
    return Observation(
        True,
        f"other processes used {percent_text(max(0.0, share))} of the cell's CPU time during the "
        f"{role.value} epoch (limit {percent_text(FOREIGN_LIMIT)})",
    )


@check(
    "outliers",
    Level.WARN,
    meaning="A few iterations took a large part of the timed epoch, and no cause outside of the "
    "cell was measured: a pause in the model's or the data's own code, slow storage, a late rank. "
    "The run stays in all medians.",
    limit=f"the seconds of outlying iterations above the median are {percent_text(OUTLIER_LIMIT)} "
    "of the epoch",
    remedy="look at step_s in iterations.npz, or " + MEASURE_AGAIN,
    tier=Tier.NUMBER,
    affects={Affected.TIME},
)
def slow_iterations(record: Record) -> Observation | None:
    """Warn if outlying iterations take more than 5 % of the timed epoch without outside cause."""
    epochs = [rank.timed for rank in record.ranks if rank.timed.slow and rank.timed.steps]
    if not epochs or disturbance.outside_causes(record):
        return None
    shares = [epoch.slow.excess_s / epoch.epoch_s if epoch.slow else 0.0 for epoch in epochs]
    share = max(shares)
    epoch = epochs[shares.index(share)]
    if epoch.slow is None or epoch.steps is None or not epoch.slow.count:
        return Observation(True, "no iteration of the timed epoch is an outlier")
    upto = "" if epoch.slow.count == 1 else "up to "
    return Observation(
        share <= OUTLIER_LIMIT,
        f"{epoch.slow.count} of {counted(epoch.iterations, 'iteration')} took {upto}"
        f"{epoch.slow.longest_s:.3g} s, the median is {epoch.steps.median_s:.3g} s: "
        f"{percent_text(share)} of the epoch (limit {percent_text(OUTLIER_LIMIT)})",
    )


@check(
    "overhead",
    Level.WARN,
    meaning="The timed and the instrumented epoch differ. If the median iteration differs as well, "
    "the instruments slow the cell down: Tables 2 and 3 are of a slower epoch than Table 1. If it "
    "does not, one of the two epochs was disturbed, the longer one.",
    limit=f"the two epochs, and their median iterations, differ by {percent_text(OVERHEAD_LIMIT)}",
    remedy=MEASURE_AGAIN,
    tier=Tier.TABLE,
    affects={Affected.TIME, Affected.SPLIT, Affected.BANDWIDTH},
)
def epochs_differ(record: Record) -> Observation | None:
    """Warn if the timed and the instrumented epoch differ by more than 5 %, whichever is longer."""
    share = record.overhead
    longer = Role.TIMED if share is not None and share < 0 else Role.INSTRUMENTED
    if share is None or disturbance.outside_causes(record, longer):  # that is reported already
        return None
    steps = _step_overhead(record)
    limit = f"limit {percent_text(OVERHEAD_LIMIT)}"
    if share < -OVERHEAD_LIMIT:
        return Observation(
            False,
            f"the timed epoch is {percent_text(1 / (1 + share) - 1)} longer than the instrumented "
            f"one ({limit}): the timed epoch was disturbed",
        )
    text = f"the instrumented epoch is {percent_text(share)} longer than the timed one ({limit})"
    if share <= OVERHEAD_LIMIT:
        return Observation(True, text)
    if steps is not None and steps <= OVERHEAD_LIMIT:
        text += (
            f", its median iteration {percent_text(steps)}: the instrumented epoch was disturbed"
        )
        return Observation(False, text)
    return Observation(
        False, text, "use a larger batch= or a larger model: the instruments cost time"
    )


def _step_overhead(record: Record) -> float | None:
    """Return the instruments' overhead by median iterations: the median over ranks."""
    ratios = []
    for rank in record.ranks:
        epoch = rank.epoch(Role.INSTRUMENTED)
        if epoch and epoch.steps and rank.timed.steps and rank.timed.steps.median_s > 0:
            ratios.append(epoch.steps.median_s / rank.timed.steps.median_s)
    return median(ratios) - 1 if ratios else None


@check(
    "other-jobs",
    Level.WARN,
    meaning="Other jobs ran on the cell's nodes when it started or ended: they share memory, "
    "network and disks with it. `disturbed` says whether they used its CPUs.",
    limit="no other job on its nodes",
    remedy="see whether `disturbed` passes, or use whole nodes (cluster.isolate=exclusive)",
    tier=Tier.LIST,
    affects={Affected.TIME, Affected.SPLIT, Affected.BANDWIDTH},
)
def other_jobs(record: Record) -> Observation | None:
    """Warn if other jobs ran on the cell's nodes at its start or its end."""
    neighbours = record.attempt.neighbours
    if neighbours is None:
        return None
    if not neighbours.jobs:
        return Observation(True, "no other job on its nodes at its start and its end")
    shown = ", ".join(neighbours.users[:NAMED])
    more = len(neighbours.users) - NAMED
    users = f"{shown} and {more} more" if more > 0 else shown
    return Observation(
        False,
        f"{counted(neighbours.jobs, 'other job')} on its nodes at its start or its end, "
        f"{neighbours.same_user} of them of the same user (users: {users})",
    )


DISTURBANCES = (
    timed_epoch_disturbed,
    instrumented_epoch_disturbed,
    unsynced_epoch_disturbed,
    slow_iterations,
    epochs_differ,
)
"""Checks of cells that are worth measuring again."""

CHECKS = (*DISTURBANCES, other_jobs)
"""In the order of the report."""
