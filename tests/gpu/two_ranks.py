"""One of two ranks on one device under gloo: messages and replicas, without times.

torchrun --nproc-per-node=2 -m tests.gpu.two_ranks DEVICE RESULT.json
"""

import json
import os
import sys
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist

from hpml_jobs.core.measurements import Purpose, Role
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.worker.epochs import instrumented_epoch, train_epoch
from hpml_jobs.worker.instruments.collectives import fingerprint
from hpml_jobs.worker.instruments.timing import HostClock
from hpml_jobs.worker.process_group import ParallelStrategy, Placement
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import make_training
from tests.gpu.bench import Bench
from tests.gpu.catalog import TWO_RANKS
from tests.gpu.rehearsal import SMALL

IMAGES, BATCH = 512, 64


def measure(bench: Bench, placement: Placement) -> dict[str, dict[str, float]]:
    """Train with each strategy; return whether replicas are equal, and counted / sent bytes."""
    torch.set_num_threads(1)
    return {name: _of_strategy(bench, placement, Strategy(name)) for name in TWO_RANKS}


def _of_strategy(bench: Bench, placement: Placement, name: Strategy) -> dict[str, float]:
    workload = msgspec.structs.replace(bench.sizes.workload, images=IMAGES)
    world = placement.world_size
    cell = bench.cell(gpus=world, batch=BATCH, strategy=name, workload=workload, loader_workers=0)
    strategy: ParallelStrategy = STRATEGIES[name](cell, placement, (bench.torch_device,))
    strategy._clock = HostClock()  # gloo's threads record no events
    training = make_training(cell, strategy, bench.folder)
    train_epoch(training, 0, Role.WARMUP)
    training.rewrap(instrumented=True)
    result = instrumented_epoch(training, 1)
    hashes: list[str | None] = [None] * world
    dist.all_gather_object(hashes, fingerprint(training.replica.parameters()))
    assert result.phases is not None
    messages = result.phases.communication.messages
    counted = sum(m.bytes * m.count for m in messages if m.purpose is Purpose.GRADIENTS)
    of_model = sum(4 * p.numel() for p in training.replica.parameters())
    return {
        "equal": float(len({*hashes}) == 1),
        "bytes": counted / (result.epoch.iterations * of_model),
    }


def main() -> None:
    """Run this rank; rank 0 writes the result."""
    device, path = Device(sys.argv[1]), Path(sys.argv[2])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if device is Device.CUDA:
        torch.cuda.set_device(0)
    dist.init_process_group("gloo")
    sizes = SMALL if device is Device.CPU else None
    result = measure(Bench(path.parent, device, sizes), Placement(rank, rank, world))
    if rank == 0:
        path.write_text(json.dumps(result))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a process that tears down


if __name__ == "__main__":
    main()
