"""One of two ranks, each on a GPU: parameters that the strategies train.

torchrun --nproc-per-node=2 -m tests.gpu.two_ranks DEVICE RESULT.json
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.worker.epochs import train_epoch
from hpml_jobs.worker.instruments.timing import HostClock
from hpml_jobs.worker.process_group import Placement
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import Training, make_training
from tests.gpu.bench import Bench
from tests.gpu.catalog import SAME_AS_DDP
from tests.gpu.rehearsal import SMALL

IMAGES, BATCH = 512, 64


def torchrun(device: Device, path: Path) -> list[str]:
    """Return the command that runs two ranks, of which the first writes the result."""
    options = ["--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2"]
    module = ["-m", "tests.gpu.two_ranks", device.value, str(path)]
    return [sys.executable, "-m", "torch.distributed.run", *options, *module]


def _training(
    bench: Bench, placement: Placement, name: Strategy, **settings: Any
) -> Training:
    workload = msgspec.structs.replace(bench.sizes.workload, images=IMAGES)
    cell = bench.cell(
        gpus=2,
        batch=BATCH,
        strategy=name,
        workload=workload,
        loader_workers=0,
        **settings,
    )
    strategy = STRATEGIES[name](cell, placement, (bench.torch_device,))
    if dist.get_backend() == "gloo":
        strategy._clock = HostClock()  # its threads record no events
    return make_training(cell, strategy, bench.folder)


def parameters(bench: Bench, placement: Placement) -> dict[str, float]:
    """Train the same epoch in fp32 under each strategy; return how far parameters are from ddp's.

    The norm of the difference is divided by that of what the epoch has changed. With two ranks
    a + b = b + a, so the exchange may differ by nothing; kernels that add in another order in each
    launch differ by about 1e-5 of a gradient, and the steps after it amplify that. A share or a
    mean that is wrong differs by about 1.
    """
    before, by_ddp = _trained(bench, placement, Strategy.DDP)
    results = {}
    for name in SAME_AS_DDP:
        _, weights = _trained(bench, placement, Strategy(name))
        results[name] = float((weights - by_ddp).norm() / (by_ddp - before).norm())
    return results


def _trained(
    bench: Bench, placement: Placement, name: Strategy
) -> tuple[Tensor, Tensor]:
    """Return all parameters before and after an epoch, whole and in one vector on the CPU."""
    path = TrainingPath(precision=Precision.FP32)
    training = _training(bench, placement, name, path=path)
    before = _vector(training)
    train_epoch(training, 0, Role.WARMUP)
    return before, _vector(training)


def _vector(training: Training) -> Tensor:
    whole = training.strategy.full_parameters(training.replica)
    return torch.cat([parameter.detach().flatten().cpu() for parameter in whole])


def main() -> None:
    """Run this rank; rank 0 writes the result."""
    device, path = Device(sys.argv[1]), Path(sys.argv[2])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_gpus = device is Device.CUDA
    torch.set_num_threads(1)
    if on_gpus:
        torch.cuda.set_device(rank)
    own = torch.device("cuda", rank) if on_gpus else None
    dist.init_process_group("nccl" if on_gpus else "gloo", device_id=own)
    bench = Bench(path.parent, device, SMALL if device is Device.CPU else None)
    result = parameters(bench, Placement(rank, rank, world))
    if rank == 0:
        path.write_text(json.dumps(result))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort a process that tears down


if __name__ == "__main__":
    main()
