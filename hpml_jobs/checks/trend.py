"""Does the speed of a cell change within its epoch, and by what measured cause?"""

from hpml_jobs.checks.cpus import OVERSUBSCRIBED
from hpml_jobs.checks.disturbance import DISTURBED
from hpml_jobs.checks.limits import DRIFT_ITERATIONS, DRIFT_LIMIT, DRIFT_S
from hpml_jobs.checks.result import Affected, Level, Observation, Tier, check
from hpml_jobs.core.disturbance import outside_causes
from hpml_jobs.core.outliers import BLOCKS, ENDS, change_of_ends, kendall_s, over_ranks
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import percent_text

MOST_S = BLOCKS * (BLOCKS - 1) // 2


@check(
    "drift",
    Level.WARN,
    meaning="Iterations became steadily slower or faster during the epoch; the reason names the "
    "outside cause where one was measured. Judged by the medians of ten blocks of iterations; not "
    f"below {DRIFT_ITERATIONS} iterations.",
    limit=f"{percent_text(DRIFT_LIMIT)} between the first and the last three blocks, where "
    f"Kendall's S is {DRIFT_S} or more in size (of {MOST_S}; without a trend it is in 1.7 % of "
    "epochs)",
    remedy="repeat the cell after a longer warm-up, and compare clocks and temperature",
    tier=Tier.TABLE,
    affects={Affected.TIME},
    explained_by={OVERSUBSCRIBED, DISTURBED},
)
def speed_drifts(record: Record) -> Observation | None:
    """Warn if iterations become steadily slower or faster, by more than 5 %."""
    steps = [rank.timed.steps for rank in record.ranks]
    blocks = [s.block_medians_s for s in steps if s and s.block_medians_s]
    if not blocks or record.ranks[0].timed.iterations < DRIFT_ITERATIONS:
        return None
    medians_s = over_ranks(blocks)
    change, trend = change_of_ends(medians_s), kendall_s(medians_s)
    text = (
        f"the last {ENDS} tenths of the iterations are {percent_text(abs(change))} "
        f"{'faster' if change < 0 else 'slower'} than the first {ENDS} (limit "
        f"{percent_text(DRIFT_LIMIT)}; S = {trend}, limit {DRIFT_S})"
    )
    if abs(change) <= DRIFT_LIMIT or abs(trend) < DRIFT_S:
        return Observation(True, text)
    causes = outside_causes(record)
    if not causes:
        return Observation(False, text)
    named = "; ".join(cause.text for cause in causes)
    return Observation(False, f"{text}; {named}", "repeat the cell on a quiet machine")


CHECKS = (speed_drifts,)
"""In the order of the report."""
