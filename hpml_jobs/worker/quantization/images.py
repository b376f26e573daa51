"""Checks that a data set can be used for quantization: test images, classes, memory."""

import torch
from torch import Tensor

from hpml_jobs.core.cell import Cell
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.data import datasets

TEST_BYTES = 4_000_000_000
"""Memory for the test images at most; they are kept because every step evaluates them."""

CALIBRATION_BYTES = 500_000_000
"""Memory for the calibration images at most; the outputs of every layer are kept too."""


def check_images(cell: Cell, data: datasets.Data) -> None:
    """Check the cell's data set before training.

    Raises:
        HpmlError: no test set, targets that are not classes, or too many images for memory.
    """
    name, test = cell.workload.data, data.test
    if test is None or not datasets.length(test):
        raise HpmlError(f"workload.data={name} has no test images, which quantization needs")
    image, target = datasets.first_batch(test, 1)
    if (
        not isinstance(image, Tensor)
        or not isinstance(target, Tensor)
        or target.dtype != torch.int64
    ):
        raise HpmlError(
            f"workload.data={name} has targets that are not class numbers, which quantization needs"
        )
    image_bytes = image.numel() * image.element_size()
    calibration = cell.quantize.calibration if cell.quantize else 0
    for part, number, limit_bytes, remedy in (
        ("test", datasets.length(test), TEST_BYTES, "set data.limit="),
        ("calibration", calibration, CALIBRATION_BYTES, "reduce quantize.calibration="),
    ):
        if number * image_bytes > limit_bytes:
            raise HpmlError(
                f"{number} {part} images of {image_bytes:,} bytes need "
                f"{number * image_bytes / 1e9:.3g} GB of memory "
                f"(limit {limit_bytes / 1e9:.3g} GB): "
                f"{remedy}"
            )
