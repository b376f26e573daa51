"""Half precision under strategies that shard, on two ranks: run by torchrun with -m.

In fp16 every strategy that shards trains with every optimizer, while torch fills memory that
nothing has written with NaN. In the first step a gradient of rank 1 overflows that is in the shard
of rank 0, in the second step one in its own. Rank 0 prints the results of all ranks as JSON.
"""

import json
from itertools import product

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn

from hpml_jobs.core.processes import leave
from hpml_jobs.core.strategies import Device, Sharded, Strategy
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.worker.instruments.collectives import fingerprint
from hpml_jobs.worker.optimizer import make_optimizer
from hpml_jobs.worker.path_steps import PathSteps
from hpml_jobs.worker.process_group import COLLECTIVE_TIMEOUT, read_placement
from hpml_jobs.worker.strategies import STRATEGIES
from tests.unit.worker.conftest import SMALL_DIGITS, cpu_cell, of_all_ranks

SHARDING = [name for name in Strategy if name.traffic.shards is not Sharded.NOTHING]
OPTIMIZERS = ("sgd", "adamw")
UNITS, STEPS = 8, 4
OVERFLOWS = (0, UNITS - 1)
"""The unit whose gradients overflow on rank 1, for each of the first steps."""

PATH = TrainingPath(precision=Precision.FP16)
CPU = (torch.device("cpu"),)


class Model(nn.Module):
    """Units that depend on parameters of their own, and one whose shard on rank 1 is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.units = nn.Sequential(nn.Linear(4, UNITS), nn.BatchNorm1d(UNITS))
        self.last = nn.Linear(4, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([self.units(inputs), self.last(inputs)], 1)


def overflow(name: Strategy, optimizer_name: str) -> dict:
    """Return whether the parameters are finite, and fingerprints before and after each step."""
    workload = msgspec.structs.replace(SMALL_DIGITS, optimizer=optimizer_name)
    # A cell on GPUs, whose steps are fused; no cell on CPUs computes in fp16.
    cell = cpu_cell(workload, gpus=2, strategy=name, device=Device.CUDA, path=PATH)
    strategy = STRATEGIES[name](cell, read_placement(cell), CPU)
    if not dist.is_initialized():
        strategy.setup(COLLECTIVE_TIMEOUT)
    torch.manual_seed(0)
    replica = Model()
    model = strategy.wrap(replica)
    optimizer = make_optimizer(cell, replica, strategy.sharded)
    steps = PathSteps(PATH, CPU[0], autocast=not name.traffic.casts_parameters)
    hashes = [fingerprint(strategy.full_parameters(replica))]
    for step in range(STEPS):
        weights = torch.full((UNITS + 1,), 1e-2)
        if step < len(OVERFLOWS) and strategy.placement.rank == 1:
            weights[OVERFLOWS[step]] = 1e6
        with steps.forward():
            outputs = model(torch.randn(3, 4))
            loss = (
                (outputs.float() - torch.randn(3, UNITS + 1)).square() * weights
            ).mean()
        steps.backward(loss)
        steps.step(optimizer)
        optimizer.zero_grad()
        hashes.append(fingerprint(strategy.full_parameters(replica)))
    is_finite = all(bool(p.isfinite().all()) for p in strategy.full_parameters(replica))
    return {"hashes": hashes, "is_finite": is_finite}


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    overflows = {
        f"{name.value} {optimizer}": of_all_ranks(overflow(name, optimizer))
        for name, optimizer in product(SHARDING, OPTIMIZERS)
    }
    if dist.get_rank() == 0:
        print(json.dumps(overflows))  # noqa: T201  (the test reads it)
    dist.destroy_process_group()
    leave(0)


if __name__ == "__main__":
    main()
