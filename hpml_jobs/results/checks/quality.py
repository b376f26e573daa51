"""Data-quality checks of one record that a correct measurement may fail."""

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.check_result import Affected, Level, Tier
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import Share, counted, percent_text
from hpml_jobs.results.checks.disturbed import DISTURBED
from hpml_jobs.results.checks.hardware import OVERSUBSCRIBED
from hpml_jobs.results.checks.result import Observation, check
from hpml_jobs.results.disturbance import outside_causes
from hpml_jobs.results.statistics import over_ranks

LEAST_ITERATIONS = 10

DRIFT_LIMIT = Share(0.05)
DRIFT_ITERATIONS = 30
DRIFT_S = 27


@check("short", Level.WARN, Tier.NUMBER, Affected.TIME, Affected.SPLIT)
def too_few_iterations(record: Record) -> Observation | None:
    """The epoch has too few iterations: start-up dominates the time.

    Limit: at least {LEAST_ITERATIONS} iterations
    Fix: use a smaller batch= or more training samples
    """
    cell = record.cell
    is_unknown = cell.workload.images is None and cell.origin.has_fixed_epochs
    if is_unknown or record.iterations is None:
        return None
    in_windows = record.work_samples is not None
    measured = record.ranks[0].timed.iterations if record.ranks else record.iterations
    return Observation(
        measured >= LEAST_ITERATIONS,
        f"{counted(measured, 'iteration')} per {'window' if in_windows else 'epoch'} "
        f"(at least {LEAST_ITERATIONS} are needed)",
        "give a larger window=" if in_windows else "",
    )


@check("buffers", Level.WARN, Tier.TABLE, Affected.LEARNING)
def buffers_differ(record: Record) -> Observation | None:
    """Each rank tests with its own BatchNorm statistics: the strategy does not synchronize buffers.

    Limit: the same buffers in every test
    Fix: quote the accuracies of all ranks, or use sync_buffers=on
    """
    hashes = [rank.buffers_hash for rank in record.ranks]
    strategy = record.cell.strategy.value
    different = len(set(hashes))
    has_buffers = record.model is not None and record.model.buffer_bytes
    if len(hashes) < 2 or "" in hashes or not has_buffers:
        return None
    if record.cell.replicas_share_buffers or different == 1:
        return Observation(True, "all ranks test with the same buffers")
    tested = [
        rank.test_accuracy for rank in record.ranks if rank.test_accuracy is not None
    ]
    span = "not tested"
    if tested:
        ends = (percent_text(share, 2) for share in (min(tested), max(tested)))
        span = f"{' to '.join(dict.fromkeys(ends))} over ranks"
    return Observation(
        False,
        f"{different} different sets of buffers on {len(hashes)} ranks, {strategy} does not "
        f"synchronize them (accuracy {span})",
    )


@check("incomplete", Level.WARN, Tier.TABLE, Affected.SPLIT, Affected.BANDWIDTH)
def ended_after_training(record: Record) -> Observation | None:
    """The job ended in a step after the measured epochs: times and phases are right, what the epoch
    without gradient exchange or the microbenchmark measures may be missing. Or a script failed
    after its timed window, whose time may be that of a training which went wrong.

    Limit: all steps after training finished, and a script did not fail
    Fix: read its log, then measure the cell again (rerun=true)
    """
    reason = record.attempt.incomplete
    if record.cell.script is not None and reason is not None:
        text = f"the script failed after its timed window: {reason}"
        affects = frozenset((Affected.TIME, Affected.SPLIT, Affected.BANDWIDTH))
        return Observation(False, text, tier=Tier.NUMBER, affects=affects)
    if record.cell.protocol is not Protocol.FULL:
        return None
    if reason is None:
        return Observation(True, "all steps after training finished")
    return Observation(False, f"a step after training did not finish: {reason}")


ENDS = 3
"""Blocks at either end whose mean is compared."""


def kendall_s(values: Sequence[float]) -> int:
    """Return Kendall's S: the pairs in rising order less the pairs in falling order.

    Of ten values without a trend, S >= 27 has a probability of 0.8 %, S <= -27 the same; |S| is 45
    at most.

    >>> kendall_s([1.0, 2.0, 3.0]), kendall_s([3.0, 2.0, 1.0]), kendall_s([1.0, 3.0, 1.0])
    (3, -3, 0)
    """
    return sum(
        (later > earlier) - (later < earlier)
        for earlier, later in combinations(values, 2)
    )


def change_of_ends(values: Sequence[float]) -> float:
    """Return by which share the last three values are above the first three, by their means.

    >>> round(change_of_ends([1.0, 1.0, 1.0, 5.0, 1.1, 1.1, 1.1]), 3)
    0.1
    """
    first = fmean(values[:ENDS])
    return fmean(values[-ENDS:]) / first - 1 if first > 0 else 0.0


@check(
    "drift",
    Level.WARN,
    Tier.TABLE,
    Affected.TIME,
    explained_by={OVERSUBSCRIBED, DISTURBED},
)
def speed_drifts(record: Record) -> Observation | None:
    """Iterations became steadily slower or faster during the epoch: the reason names the outside
    cause where one was measured. Judged by the medians of ten blocks of iterations; not below
    {DRIFT_ITERATIONS} iterations. Without a trend 1.7 % of epochs have such an S (of 45).

    Limit: {DRIFT_LIMIT} between the first and the last three tenths, with Kendall's S at {DRIFT_S}
    Fix: measure longer epochs, and compare clocks and temperature
    """
    steps = [rank.timed.steps for rank in record.ranks]
    blocks = [s.block_medians_s for s in steps if s and s.block_medians_s]
    if not blocks or record.ranks[0].timed.iterations < DRIFT_ITERATIONS:
        return None
    medians_s = over_ranks(blocks)
    change = change_of_ends(medians_s)
    trend = kendall_s(medians_s)
    direction = "faster" if change < 0 else "slower"
    text = (
        f"the last {ENDS}0 % of the iterations are {percent_text(abs(change))} "
        f"{direction} than the first {ENDS}0 % (limit {DRIFT_LIMIT} with a steady trend)"
    )
    if abs(change) <= DRIFT_LIMIT or abs(trend) < DRIFT_S:
        return Observation(True, text, share=abs(change), about=direction)
    causes = outside_causes(record, Role.TIMED)
    text += "".join(f"; {cause.text}" for cause in causes)
    remedy = "repeat the cell on a quiet machine" if causes else ""
    return Observation(False, text, remedy, share=abs(change), about=direction)
