"""Memory of GPT-2 124M under fsdp in bf16, against what sharding must leave on each rank."""

from collections.abc import Iterator

import msgspec

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker.sharding.fsdp import COUNTS_MESSAGES
from tests.gpu.bench import ONE_GPU, Bench, CellRun
from tests.gpu.catalog import keys_of
from tests.gpu.figures import Figure, left_out

RANKS = 2
BATCH = 4
ITERATIONS = 4
STATE_BYTES = 8
"""Of a parameter: AdamW's two moments in fp32."""


def measure(bench: Bench) -> Iterator[Figure]:
    """Train with a batch and twice of it: their peaks differ by the activations of the smaller."""
    reason = bench.why_not(Precision.BF16) or ("" if bench.has_two_gpus else ONE_GPU)
    if not COUNTS_MESSAGES:
        reason = "fsdp needs torch 2.9 or later"
    if reason:
        yield from left_out(keys_of("fsdp_memory"), reason)
        return
    runs = [_run(bench, batch) for batch in (BATCH, 2 * BATCH)]
    ranks = [run.record.ranks[0] if run.record and run.is_ok else None for run in runs]
    peaks = [
        rank.peak_memory_bytes for rank in ranks if rank and rank.peak_memory_bytes
    ]
    if len(peaks) < len(runs):
        yield Figure(key="peak", value=None, note="; ".join(run.reason for run in runs))
        return
    workload = bench.sizes.transformer
    kept, expected = 2 * peaks[0] - peaks[1], kept_bytes(workload)
    note = f"{kept / 1e6:,.0f} MB, by the formula {expected / 1e6:,.0f}"
    yield Figure(key="peak", value=kept / expected, note=note)
    state = ranks[0].optimizer_state_bytes if ranks[0] else None
    share = STATE_BYTES * (workload.built_in_parameters or 0) / RANKS
    yield Figure(key="state", value=(state or 0) / share)


def kept_bytes(workload: Workload) -> float:
    """Return the bytes on a rank when the loss is computed, without activations.

    A part of the parameters and of AdamW's moments in fp32, and the root's own group whole in bf16,
    which FSDP2 keeps from forward to backward. A block's weights are freed after its forward, and
    gradients come later.

    >>> from tests.gpu.sizes import GPT2
    >>> kept_bytes(GPT2) / 1e6
    825.698304
    """
    parameters, width = workload.built_in_parameters or 0, workload.width or 0
    rows = (workload.padded_vocab or workload.vocab or 0) + (workload.context or 0)
    norm = 2
    return (4 + STATE_BYTES) * parameters / RANKS + 2 * (rows + norm) * width


def _run(bench: Bench, batch: int) -> CellRun:
    workload = msgspec.structs.replace(
        bench.sizes.transformer, images=ITERATIONS * batch * RANKS
    )
    return bench.run_cell(
        f"batch {batch}",
        workload=workload,
        gpus=RANKS,
        batch=batch,
        strategy=Strategy.FSDP,
        path=TrainingPath(precision=Precision.BF16),
        protocol=Protocol.LAB,
        epochs=2,
        loader_workers=0,
    )
