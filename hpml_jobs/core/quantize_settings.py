"""The keys of post-training quantization, and the cells that may have them."""

import msgspec

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.strategies import BASELINE, Strategy
from hpml_jobs.core.value import Value
from hpml_jobs.core.workload import Workload

QUANTIZABLE = ("lenet", "lenet_bias")
"""Built-in models that can be quantized; any other model is the user's code."""


class QuantizeSettings(Value, frozen=True, kw_only=True):
    """The `quantize.` keys; without a number of calibration images nothing is quantized."""

    calibration: int | None = None
    percentile: float = 99.9
    per_channel: bool = False

    @property
    def for_cell(self) -> "Quantize | None":
        """The part of a cell, or None.

        Raises:
            UsageError: it gives no scale, or only other keys are given.
        """
        if self.calibration is not None:
            return Quantize(**msgspec.structs.asdict(self))
        default = QuantizeSettings()
        if self != default:
            key = (
                "percentile" if self.percentile != default.percentile else "per_channel"
            )
            raise UsageError(
                f"quantize.{key} without quantize.calibration: nothing would be quantized; use "
                "quantize.calibration=1000, or grid=quantize"
            )
        return None


class Quantize(Value, frozen=True, kw_only=True):
    """Settings of quantization: `calibration` is the number of images that profile activations.

    `percentile` is the share of absolute values, in percent, that the percentile bound covers.
    `per_channel` adds steps with one weight scale per output channel instead of one per layer.
    """

    calibration: int
    percentile: float = 99.9
    per_channel: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that give no scale."""
        if self.calibration < 1:
            raise UsageError(
                f"quantize.calibration={self.calibration}: activations are profiled on 1 training "
                "image or more"
            )
        if not 0 < self.percentile <= 100:
            raise UsageError(
                f"quantize.percentile={self.percentile:g}: must be above 0 and at most 100"
            )

    def check(self, strategy: Strategy, workload: Workload) -> None:
        """Refuse cells that cannot be quantized.

        Raises:
            UsageError: the strategy, the model, the data or the number of images.
        """
        model, images = workload.model, workload.images
        if strategy is not BASELINE:
            raise UsageError(
                f"quantize with strategy={strategy.value}: it works on one trained model; "
                "take gpus=1"
            )
        if model not in QUANTIZABLE and ":" not in model:
            raise UsageError(
                f"quantize with workload.model={model}: it understands {', '.join(QUANTIZABLE)}, "
                "or your own pkg.mod:build that returns a torch.nn.Sequential"
            )
        if workload.has_tokens:
            raise UsageError(
                f"quantize with workload.data={workload.data}: it calibrates on images; leave "
                "quantize. out"
            )
        if images is not None and self.calibration > images:
            raise UsageError(
                f"quantize.calibration={self.calibration}: there are {images} training images"
            )
