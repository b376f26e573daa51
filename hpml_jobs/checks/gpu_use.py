"""What a GPU waited for besides data: the host that launches its work, and its allocator."""

from hpml_jobs.checks.limits import LAUNCH_LIMIT
from hpml_jobs.checks.result import Affected, Level, Observation, Tier, check
from hpml_jobs.core.formulas import launch_share
from hpml_jobs.core.record import Rank, Record
from hpml_jobs.core.text import counted, percent_text


@check(
    "launch-bound",
    Level.WARN,
    meaning="The host needs as long to launch the kernels of an iteration as the iteration takes: "
    "the epoch measures Python and the CPU, and a faster GPU would not be faster. Only with "
    "device=cuda.",
    limit=f"the least time of the host for an iteration is {percent_text(LAUNCH_LIMIT)} of the "
    "median iteration without stall, on every rank",
    remedy="use a larger batch=, or compile=true, which launches fewer kernels",
    tier=Tier.TABLE,
    affects={Affected.TIME},
)
def launch_bound(record: Record) -> Observation | None:
    """Warn if launching an iteration takes as long as the iteration."""
    shares = [(share, rank) for rank in record.ranks if (share := _launch_share(rank)) is not None]
    if not shares:
        return None
    share, rank = max(shares, key=lambda pair: pair[0])
    return Observation(
        share <= LAUNCH_LIMIT,
        f"the host takes {1e3 * (rank.timed.launch_s or 0):.3g} ms to launch an iteration on rank "
        f"{rank.rank}, {percent_text(share)} of its time (limit {percent_text(LAUNCH_LIMIT)})",
    )


def _launch_share(rank: Rank) -> float | None:
    timed = rank.timed
    if timed.launch_s is None or timed.steps is None or timed.stalls is None:
        return None
    step_s = timed.steps.full_median_s or timed.steps.median_s
    return launch_share(timed.launch_s, step_s, timed.stalls.p20_s)


@check(
    "memory-retries",
    Level.WARN,
    meaning="torch's allocator had to free cached memory during the timed epoch, because the GPU "
    "was full: each time the GPU waits. Only with device=cuda.",
    limit="no retry in the timed epoch",
    remedy="use a smaller batch=",
    tier=Tier.NUMBER,
    affects={Affected.TIME},
)
def memory_retried(record: Record) -> Observation | None:
    """Warn if the allocator freed cached memory in the timed epoch."""
    memories = [rank.timed.memory for rank in record.ranks if rank.timed.memory]
    if not memories:
        return None
    retries = sum(memory.retries for memory in memories)
    reserved = max(memory.reserved_bytes for memory in memories)
    return Observation(
        retries == 0,
        f"{counted(retries, 'allocation')} freed cached memory first, at {reserved / 1e9:.3g} GB",
    )


CHECKS = (launch_bound, memory_retried)
"""In the order of the report."""
