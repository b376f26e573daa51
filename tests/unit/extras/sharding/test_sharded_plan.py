"""Cells of strategies that shard: their path, and what they gather."""

import pytest

from tests.unit.plan.test_path import (
    RESNET,
    planned,  # noqa: F401  (a fixture)
)


@pytest.mark.parametrize(
    ("gpu", "strategy", "label"), [("h100", "fsdp", "bf16"), ("v100", "zero1", "fp16")]
)
def test_auto_is_without_channels_last(planned, gpu, strategy, label):  # noqa: F811
    (cell,), _ = planned(gpu, RESNET, "path=auto", "gpus=2", f"strategy={strategy}")
    assert (cell.cell.path.label, cell.cell.loader) == (label, "device")
