"""The floating-point operations of a model, counted by torch."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from hpml_jobs.core.workload import Workload
from hpml_jobs.worker import models
from hpml_jobs.worker.data import datasets

PLACES = (("meta", "meta"), ("cpu", "meta"), ("cpu", "cpu"))
"""Where the model is built and runs for the count: first without memory and computation, which also
sees the matrix products of attention that fused CPU kernels hide; last on the CPU, for code that
needs values."""


class FlopCount(NamedTuple):
    """FLOP of one sample's forward and backward; None with the reason in `missing`."""

    per_sample: int | None
    missing: tuple[str, ...] = ()


def count_flop(workload: Workload, loss: models.Loss, batch: Callable[[], Any]) -> FlopCount:
    """Count the FLOP of one sample's forward and backward pass, 2 per multiply-add.

    torch counts convolutions and matrix products of a new model with a small batch; the trained
    replica and the random state of this process stay as they are. What the model itself
    computes again in backward (activation checkpointing) torch counts too.
    """
    reason = ""
    with datasets.preserved_random_state():
        for built, place in PLACES:
            try:
                flop = _count(workload, loss, batch(), torch.device(built), torch.device(place))
            except Exception as error:  # no count is worth a failed run
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
            else:
                if flop:
                    return FlopCount(flop)
                reason = "torch counted no convolution and no matrix product"
    return FlopCount(None, (f"flop_per_sample: {reason}",))


def _count(
    workload: Workload, loss: models.Loss, batch: Any, built: torch.device, place: torch.device
) -> int:
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415 -- not fast

    with built:
        model = models.build(workload).to(place).train()
    inputs, targets = (part.to(place) for part in batch)
    with (
        place,  # tensors that the model makes in forward
        warnings.catch_warnings(action="ignore"),  # torch warns of the counter's own hooks
        torch.compiler.set_stance("force_eager"),  # compiled operations are not counted
        FlopCounterMode(display=False) as counter,
    ):
        loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
    return int(counter.get_total_flops()) // len(targets)
