"""Do the instruments and torch.profiler measure the same time of communication?"""

from hpml_jobs.checks.cpus import busiest_host
from hpml_jobs.checks.limits import LAUNCH_MS, PROFILER_LIMIT
from hpml_jobs.checks.result import Affected, Level, Observation, Tier, check
from hpml_jobs.core.measurements import ProfilerSummary
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import percent_text


def allowed_gap_s(trace: ProfilerSummary) -> float:
    """Return the allowed difference of communication: 5 %, or the launches of the messages."""
    return max(PROFILER_LIMIT * trace.comm_s, 1e-3 * LAUNCH_MS * trace.messages)


@check(
    "profiler",
    Level.WARN,
    meaning="Our instruments and torch.profiler measure another time of communication for the same "
    "iterations, by more than the launches from Python explain. Not judged where processes, or "
    "with device=cpu also loader workers, take turns on too few CPUs: a message that is launched "
    "then waits for a CPU.",
    limit=f"{percent_text(PROFILER_LIMIT)} of the profiler's time, or {LAUNCH_MS} ms per message "
    "if that is longer, on every rank",
    remedy="check the split of Table 2 with trace=true, which keeps the profiler's trace",
    tier=Tier.TABLE,
    affects={Affected.SPLIT},
)
def profiler_disagrees(record: Record) -> Observation | None:
    """Warn if our communication time is further from the profiler's than launches explain."""
    traces = [rank.profiler for rank in record.ranks if rank.profiler and rank.profiler.comm_s > 0]
    if not traces or not record.cell.strategy.under_torchrun:  # dp's copies: not collectives
        return None
    host = busiest_host(record)
    if host and (host.is_shared if record.cell.device is Device.CPU else host.is_oversubscribed):
        return None
    worst = max(traces, key=lambda trace: _gap_s(trace) / allowed_gap_s(trace))
    gap_s = _gap_s(worst)
    return Observation(
        gap_s <= allowed_gap_s(worst),
        f"communication differs by {percent_text(gap_s / worst.comm_s)} from the profiler's (limit "
        f"{percent_text(PROFILER_LIMIT)}), {1e3 * gap_s / max(1, worst.messages):.2g} ms per "
        f"message (limit {LAUNCH_MS} ms)",
    )


def _gap_s(trace: ProfilerSummary) -> float:
    return abs(trace.instruments_comm_s - trace.comm_s)


CHECKS = (profiler_disagrees,)
"""In the order of the report."""
