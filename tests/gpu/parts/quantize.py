"""int8 quantization of a network that was trained on the GPU."""

from collections.abc import Iterator

import msgspec

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.check_result import Level
from hpml_jobs.core.quantization import quantized_of
from hpml_jobs.core.quantize_settings import QuantizeSettings
from tests.gpu.bench import Bench
from tests.gpu.figures import Figure
from tests.gpu.parts.cells import checks_of

IMAGES, BATCH, CALIBRATION = 2_560, 128, 256
LR = 0.01
"""Small: random labels teach nothing, and outputs that are all 0 have no scale."""


def measure(bench: Bench) -> Iterator[Figure]:
    """Train LeNet on random images and quantize it."""
    changes = {"model": "lenet", "parameters": None, "lr": LR}
    workload = msgspec.structs.replace(bench.workload_of(IMAGES), **changes)
    run = bench.run_cell(
        "lenet",
        workload=workload,
        batch=BATCH,
        protocol=Protocol.LAB,
        quantize=QuantizeSettings(calibration=CALIBRATION, per_channel=True).for_cell,
    )
    quantized = quantized_of(run.record) if run.record else None
    note = "" if quantized else run.reason
    yield Figure(key="ok", value=float(quantized is not None), note=note)
    if run.record is None or quantized is None:
        return
    failed = checks_of(run.record, Level.FAIL)
    yield Figure(key="failed", value=float(len(failed)), note=", ".join(failed))
    yield Figure(key="steps", value=float(len(quantized.steps)))
    note = "; ".join(quantized.missing)
    yield Figure(key="missing", value=float(len(quantized.missing)), note=note)
    yield Figure(
        key="reference", value=float(quantized.reference is not None), note=note
    )
