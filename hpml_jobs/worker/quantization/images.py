"""Whether a data set can judge quantization: test images, of classes, that memory can keep."""

import torch
from torch import Tensor

from hpml_jobs.core.cell import Cell
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.data import datasets

TEST_BYTES = 4_000_000_000
"""Of all test images, which are gone through for every step."""

CALIBRATION_BYTES = 500_000_000
"""Of the calibration images; the values of every layer's outputs are kept beside them."""


def check_images(cell: Cell, data: datasets.Data) -> None:
    """Refuse what could not be judged, or not kept.

    Raises:
        HpmlError: no test set, targets that are not classes, or more images than memory is for.
    """
    name, test = cell.workload.data, data.test
    if test is None or not datasets.length(test):
        raise HpmlError(f"workload.data={name} has no test images: quantization is judged by them")
    image, target = datasets.first(test, 1)
    if (
        not isinstance(image, Tensor)
        or not isinstance(target, Tensor)
        or target.dtype != torch.int64
    ):
        raise HpmlError(
            f"workload.data={name}: quantization is judged by class numbers, its targets are none"
        )
    each = image.numel() * image.element_size()
    wanted = cell.quantize.calibration if cell.quantize else 0
    for what, number, most, remedy in (
        ("test", datasets.length(test), TEST_BYTES, "take data.limit="),
        ("calibration", wanted, CALIBRATION_BYTES, "take a smaller quantize.calibration="),
    ):
        if number * each > most:
            raise HpmlError(
                f"{number} {what} images of {each:,} bytes are {number * each / 1e9:.3g} GB, more "
                f"than quantization keeps in memory ({most / 1e9:.3g} GB): {remedy}"
            )
