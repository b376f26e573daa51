"""fsdp as rank 0 of 2 on one GPU, in torch's fake group: memory, hooks and streams.

Nothing is sent: NCCL refuses two ranks on one card, and FSDP2 of one rank makes no collectives. Not
zero1: DDP needs futures, which the fake group has not.
"""

import gc
from collections.abc import Iterator
from typing import Any
from unittest import mock

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Device, Loader, Strategy
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.worker.epochs import instrumented_epoch, train_epoch
from hpml_jobs.worker.optimizer import state_bytes
from hpml_jobs.worker.process_group import Placement
from hpml_jobs.worker.sharding.fsdp import COUNTS_MESSAGES
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import Training, make_training
from tests.gpu.bench import Bench
from tests.gpu.catalog import keys_of
from tests.gpu.figures import Figure, left_out
from tests.gpu.parts.fsdp_memory import (
    BATCH,
    ITERATIONS,
    RANKS,
    STATE_BYTES,
    kept_bytes,
)


def measure(bench: Bench) -> Iterator[Figure]:
    """Train with a batch and twice of it: their peaks differ by the activations of the smaller."""
    reason = bench.why_not(Precision.BF16)
    if not COUNTS_MESSAGES:
        reason = "fsdp needs torch 2.9 or later"
    if reason:
        yield from left_out(keys_of("fake_ranks"), reason)
        return
    if bench.device is Device.CUDA:
        torch.cuda.set_device(0)
    torch.set_num_threads(1)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    try:
        with mock.patch.object(dist, "reduce_scatter_tensor", _take_own_share):
            yield from _figures(bench)
    finally:
        dist.destroy_process_group()


def _take_own_share(output: Tensor, input: Tensor, *_: Any, **__: Any) -> None:
    """Take the rank's own share: the fake group leaves the output as it is, which may be NaN."""
    output.copy_(input.chunk(RANKS)[0])


def _figures(bench: Bench) -> Iterator[Figure]:
    peaks = []
    for batch in (2 * BATCH, BATCH):
        training = _training(bench, batch)
        train_epoch(training, 0, Role.WARMUP)
        memory = train_epoch(training, 1, Role.TIMED).epoch.memory
        peaks += [memory.allocated_bytes] if memory else []
        if batch == BATCH:
            yield from _of_rank(bench, training)
        del training
        gc.collect()  # hooks of FSDP2 are cycles, which would keep the memory of the first one
    if len(peaks) < 2:
        yield Figure(
            key="peak", value=None, note="the device has no statistics of memory"
        )
        return
    kept, expected = 2 * peaks[1] - peaks[0], kept_bytes(bench.sizes.transformer)
    note = f"{kept / 1e6:,.0f} MB, by the formula {expected / 1e6:,.0f}"
    yield Figure(key="peak", value=kept / expected, note=note)


def _training(bench: Bench, batch: int) -> Training:
    images = ITERATIONS * batch * RANKS
    cell = bench.cell(
        gpus=RANKS,
        batch=batch,
        strategy=Strategy.FSDP,
        workload=msgspec.structs.replace(bench.sizes.transformer, images=images),
        path=TrainingPath(precision=Precision.BF16),
        loader=Loader.DEVICE,
        loader_workers=0,
    )
    strategy = STRATEGIES[cell.strategy](
        cell, Placement(0, 0, RANKS), (bench.torch_device,)
    )
    return make_training(cell, strategy, bench.folder)


def _of_rank(bench: Bench, training: Training) -> Iterator[Figure]:
    """Compare the optimizer's state and the messages of an epoch with what the rank must have."""
    share = STATE_BYTES * (bench.sizes.transformer.built_in_parameters or 0) / RANKS
    yield Figure(key="state", value=state_bytes(training.optimizer) / share)
    training.rewrap(instrumented=True)
    result = instrumented_epoch(training, 2)
    assert result.phases is not None
    assert result.ledger is not None
    yield Figure(key="closure", value=100 * (result.epoch.closure or 0.0))
    messages = result.phases.communication.messages
    facts = training.strategy.shard_facts(training.replica, training.optimizer)
    expected = result.epoch.iterations * sum(volume.bytes for volume in facts.expected)
    counted = sum(message.bytes * message.count for message in messages)
    note = f"{len(result.ledger.collectives)} messages"
    yield Figure(key="bytes", value=counted / expected, note=note)
