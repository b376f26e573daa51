"""Keys that were given and that no cell would heed: said, instead of passed over in silence."""

from collections.abc import Iterable, Sequence

from hpml_jobs.core.cell import Cell
from hpml_jobs.errors import UsageError
from hpml_jobs.plan.settings import AskedQuantize, Settings


def refuse_unused(asked: Sequence[Settings], cells: Iterable[Cell]) -> None:
    """Refuse what was asked of ranks where no cell has several, and quantization without images.

    In a sweep, cells of one GPU share the baseline: one cell that heeds the key is enough.
    """
    grouped = [cell for cell in cells if cell.strategy.under_torchrun and cell.gpus > 1]
    remedy = "take strategy=ddp with gpus=2 or more"
    if not grouped:
        if any(not settings.set_epoch for settings in asked):
            raise UsageError(f"set_epoch=false: no cell has ranks that share the images; {remedy}")
        buffers = next((one.sync_buffers for one in asked if one.sync_buffers is not None), None)
        if buffers is not None:
            raise UsageError(f"sync_buffers={buffers.value}: no cell has several ranks; {remedy}")
    default = AskedQuantize()
    for settings in asked:
        quantize = settings.quantize
        if quantize.calibration is None and quantize != default:
            key = "percentile" if quantize.percentile != default.percentile else "per_channel"
            raise UsageError(
                f"quantize.{key} without quantize.calibration: nothing would be quantized; say "
                "quantize.calibration=1000, or grid=quantize"
            )
