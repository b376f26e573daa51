"""Memory bandwidth of GPUs by name, and the least time of an optimizer step."""

from typing import NamedTuple

from hpml_jobs.checks.gpu_peaks import gpu_key, gpu_model_of
from hpml_jobs.checks.result import REPORT_BUG, Affected, Level, Observation, Tier, check
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.workload import Optimizer, Workload


class Memory(NamedTuple):
    """GB/s of a GPU's memory at most (1e9 bytes), and the MB of its last cache (1e6 bytes)."""

    gb_per_s: float
    cache_mb: float


MEMORY = {
    "k80": Memory(240, 1.6),
    "p100": Memory(732, 4.2),
    "p40": Memory(346, 3.2),
    "gtx1080ti": Memory(484, 2.9),
    "v100": Memory(1134, 6.3),
    "v100sxm2": Memory(900, 6.3),
    "v100pcie": Memory(900, 6.3),
    "v100s": Memory(1134, 6.3),
    "titanv": Memory(653, 4.8),
    "t4": Memory(320, 4.2),
    "rtx6000": Memory(672, 6.3),
    "rtx8000": Memory(672, 6.3),
    "titanrtx": Memory(672, 6.3),
    "rtx2080ti": Memory(616, 5.8),
    "a100": Memory(2039, 42),
    "a800": Memory(2039, 42),
    "a30": Memory(933, 26),
    "a10": Memory(600, 6.3),
    "a40": Memory(696, 6.3),
    "rtxa4000": Memory(448, 4.2),
    "rtxa5000": Memory(768, 6.3),
    "rtxa6000": Memory(768, 6.3),
    "rtx3090": Memory(936, 6.3),
    "l4": Memory(300, 51),
    "l40": Memory(864, 101),
    "l40s": Memory(864, 101),
    "rtx6000ada": Memory(960, 101),
    "rtx4090": Memory(1008, 76),
    "rtx5090": Memory(1792, 101),
    "rtxpro6000": Memory(1792, 135),
    "h20": Memory(4000, 63),
    "h800": Memory(3350, 53),
    "h100": Memory(3350, 53),
    "h100pcie": Memory(2039, 53),
    "h100nvl": Memory(3938, 63),
    "h200": Memory(4800, 53),
    "h200nvl": Memory(4800, 63),
    "gh200": Memory(4900, 63),
    "b200": Memory(8000, 135),
    "gb200": Memory(8000, 135),
}
"""By the keys of `gpu_peaks.PEAKS`, from the data sheets and architecture whitepapers named there;
of boards with one name and several memories (A100 40 and 80 GB, GH200) the fastest."""

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


def passes_of(workload: Workload) -> int:
    """Return how often a step reads or writes as many bytes as the gradients have.

    It reads gradients and parameters and writes parameters; with momentum it also reads and writes
    the momentum, and AdamW two moments.
    """
    if workload.optimizer == Optimizer.ADAMW:
        return 7
    return 5 if workload.momentum else 3


def least_step_s(gradient_bytes: int, passes: int, memory: Memory) -> float:
    """Return the least seconds of an optimizer's step, by the bytes that pass through memory.

    At the start the cache may hold a part of what is read, at the end a part of what is written.

    >>> h200 = MEMORY["h200"]
    >>> [round(1e6 * least_step_s(44_695_848, passes, h200), 1) for passes in (7, 5, 3)]
    [43.1, 24.5, 5.9]
    >>> least_step_s(104_616, 5, h200)
    0.0
    """
    through = passes * gradient_bytes - 2e6 * memory.cache_mb
    return max(0.0, through / (memory.gb_per_s * 1e9))


@check(
    "memory-bandwidth",
    Level.FAIL,
    meaning="The optimizer would have read and written the parameters faster than the GPU's memory "
    "can: a stamp is in the wrong place, or the device was not waited for. A model that fits into "
    "the cache passes. Not checked for unknown GPUs, for models of your own (they may leave "
    "parameters out of a step), and where ranks update a part of the parameters.",
    limit="the bytes of gradients, parameters and optimizer state (5 passes of SGD, 3 without "
    "momentum, 7 of AdamW), less what the cache may hold, through the GPU's memory "
    "(hpml_jobs/checks/gpu_memory.py)",
    remedy=f"do not use Table 2 of this cell; {REPORT_BUG}",
    tier=Tier.NUMBER,
    affects={Affected.SPLIT},
)
def faster_than_memory(record: Record) -> Observation | None:
    """Fail if the optimizer's phase is shorter than its traffic with the memory."""
    cell, gpu = record.cell, gpu_model_of(record) or ""
    memory = MEMORY.get(gpu_key(gpu))
    if cell.device is not Device.CUDA or cell.strategy not in REPLICATED:
        return None
    if memory is None or record.model is None or cell.workload.own_code:
        return None
    epochs = [rank.epoch(Role.INSTRUMENTED) for rank in record.ranks]
    steps_s = [e.phases.optimizer_s / e.iterations for e in epochs if e and e.phases]
    least_s = least_step_s(record.model.gradient_bytes, passes_of(cell.workload), memory)
    if not steps_s:
        return None
    return Observation(
        min(steps_s) >= least_s,
        f"the optimizer takes {1e6 * min(steps_s):.3g} us per iteration, the memory of {gpu} "
        f"({memory.gb_per_s:,.0f} GB/s) needs at least {1e6 * least_s:.3g} us for its bytes",
    )


CHECKS = (faster_than_memory,)
"""In the order of the report."""
