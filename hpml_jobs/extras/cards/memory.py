"""The check of an optimizer's step against the memory's bandwidth of its GPU."""

from hpml_jobs.checks.gpu_peaks import PEAKS, gpu_key, gpu_model_of
from hpml_jobs.checks.result import Observation, check
from hpml_jobs.core.check_result import Affected, Level, Tier
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.workload import Optimizer, Workload

REPLICATED = frozenset(
    {
        Strategy.SINGLE,
        Strategy.DP,
        Strategy.DDP,
        Strategy.ALLREDUCE,
        Strategy.ALLREDUCE_FLAT,
        Strategy.GATHER_SCATTER,
    }
)
"""Strategies in which a GPU updates all parameters."""


@check("memory-bandwidth", Level.FAIL, Tier.NUMBER, Affected.SPLIT)
def faster_than_memory(record: Record) -> Observation | None:
    """The optimizer would have read and written the parameters faster than the GPU's memory can: a
    stamp is in the wrong place, or the device was not waited for. A model that fits into the cache
    passes. The bytes are those of gradients, parameters and optimizer state (5 passes of SGD, 3
    without momentum, 7 of AdamW), less what the cache may hold. Not checked for unknown GPUs, for
    models of your own (they may leave parameters out of a step), and where ranks update a part of
    the parameters.

    Limit: the bandwidth of the GPU's memory (hpml_jobs/checks/gpu_peaks.csv)
    Fix: do not use Table 2 of this cell; {REPORT_BUG}
    """
    cell, gpu = record.cell, gpu_model_of(record) or ""
    peak, model = PEAKS.get(gpu_key(gpu)), record.model
    if cell.device is not Device.CUDA or cell.strategy not in REPLICATED:
        return None
    if peak is None or peak.gb_per_s is None or peak.cache_mb is None:
        return None
    epochs = [rank.epoch(Role.INSTRUMENTED) for rank in record.ranks]
    steps_s = [e.phases.optimizer_s / e.iterations for e in epochs if e and e.phases]
    if model is None or cell.workload.own_code or not steps_s:
        return None
    passes = passes_of(cell.workload)
    least_s = least_step_s(model.gradient_bytes, passes, peak.gb_per_s, peak.cache_mb)
    return Observation(
        min(steps_s) >= least_s,
        f"the optimizer takes {1e6 * min(steps_s):.3g} us per iteration, the memory of {gpu} "
        f"({peak.gb_per_s:,.0f} GB/s) needs at least {1e6 * least_s:.3g} us for its bytes",
    )


def passes_of(workload: Workload) -> int:
    """Return how often a step reads or writes as many bytes as the gradients have.

    It reads gradients and parameters and writes parameters; with momentum it also reads and writes
    the momentum, and AdamW two moments.
    """
    if workload.optimizer == Optimizer.ADAMW:
        return 7
    return 5 if workload.momentum else 3


def least_step_s(
    gradient_bytes: int, passes: int, gb_per_s: float, cache_mb: float
) -> float:
    """Return the least seconds of an optimizer's step, by the bytes that pass through memory.

    At the start the cache may hold a part of what is read, at the end a part of what is written.

    >>> [round(1e6 * least_step_s(44_695_848, passes, 4800, 53), 1) for passes in (7, 5, 3)]
    [43.1, 24.5, 5.9]
    >>> least_step_s(104_616, 5, 4800, 53)
    0.0
    """
    through = passes * gradient_bytes - 2e6 * cache_mb
    return max(0.0, through / (gb_per_s * 1e9))
