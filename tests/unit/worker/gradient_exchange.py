"""Every strategy's exchange between real processes: run by torchrun with -m.

Each rank takes its share of one global batch and makes two steps; rank 0 prints what all ranks
found as JSON. The model has no BatchNorm, so that one process on the global batch must come to the
same parameters; a second model has it, and tells how buffers fare.
"""

import json
import os

import torch
import torch.distributed as dist
from torch import nn

from hpml_jobs.core.cell import Device, Strategy, SyncBuffers
from hpml_jobs.core.processes import leave
from hpml_jobs.worker.instruments.collectives import Ledger, by_kind, fingerprint
from hpml_jobs.worker.instruments.timing import HostClock
from hpml_jobs.worker.strategies import STRATEGIES, Place, Single, this_place
from hpml_jobs.worker.syncbn import over_all_ranks

from .conftest import cpu_cell

SHARE = 6
CPU = (torch.device("cpu"),)


def model(seed: int, *, normalised: bool = False) -> nn.Module:
    torch.manual_seed(seed)
    norm = [nn.BatchNorm1d(16, dtype=torch.float64)] if normalised else []
    return nn.Sequential(
        nn.Linear(8, 16, dtype=torch.float64),
        *norm,
        nn.ReLU(),
        nn.Linear(16, 4, dtype=torch.float64),
    )


def batch(ranks: range) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    whole = torch.randn(SHARE * 8, 8, generator=generator, dtype=torch.float64)
    rows = slice(ranks.start * SHARE, ranks.stop * SHARE)
    return whole[rows], (whole.sum(1).long() % 4).abs()[rows]


def steps(strategy: Single, trained: nn.Module, replica: nn.Module, ranks: range) -> None:
    optimizer = torch.optim.SGD(trained.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    images, targets = batch(ranks)
    for _ in range(2):
        nn.functional.cross_entropy(trained(images), targets).backward()
        strategy.exchange(replica)
        optimizer.step()
        optimizer.zero_grad()


def reference(processes: int) -> list[torch.Tensor]:
    """One process on the same global batch, from rank 0's parameters."""
    alone = model(seed=0)
    steps(Single(cpu_cell(), Place(0, 0, 1), CPU), alone, alone, range(processes))
    return list(alone.parameters())


def look(strategy: Single, *, observed: bool) -> dict:
    """What one strategy does on this rank."""
    place = strategy.place
    replica = model(seed=place.rank)  # ranks begin differently: the strategy must see to it
    trained = strategy.wrap(replica, observed=observed)
    strategy.ledger = Ledger(HostClock()) if observed else None
    steps(strategy, trained, replica, range(place.rank, place.rank + 1))
    wanted = reference(place.processes)
    found = {
        "parameters": fingerprint(replica.parameters()),
        "off": max(
            float((mine - theirs).detach().abs().max())
            for mine, theirs in zip(replica.parameters(), wanted, strict=True)
        ),
    }
    if strategy.ledger:
        entries, durations = strategy.ledger.collectives, strategy.ledger.durations_s()
        messages = by_kind(entries, durations)
        found["sent"] = [[m.kind, m.purpose, m.elements, m.bytes, m.count] for m in messages]
        found["longest_s"] = max(durations)
    strategy.ledger = None
    return found | buffers(strategy)


def over_all_images(strategy: Single) -> dict:
    """SyncBatchNorm on every rank's share, beside BatchNorm of one process on the global batch."""
    place = strategy.place
    replica, alone = model(seed=0, normalised=True), model(seed=0, normalised=True)
    replica = over_all_ranks(replica, Device.CPU)
    steps(strategy, strategy.wrap(replica), replica, range(place.rank, place.rank + 1))
    steps(Single(cpu_cell(), Place(0, 0, 1), CPU), alone, alone, range(place.processes))
    mine, theirs = replica.state_dict(), alone.state_dict()
    assert list(mine) == list(theirs)
    return {
        "off": max(float((mine[name] - theirs[name]).abs().max()) for name in mine),
        "buffers": fingerprint(replica.buffers()),
    }


def buffers(strategy: Single) -> dict:
    place = strategy.place
    replica = model(seed=0, normalised=True)
    trained = strategy.wrap(replica)
    steps(strategy, trained, replica, range(place.rank, place.rank + 1))
    after = fingerprint(replica.buffers())
    trained.eval()
    trained(batch(range(place.rank, place.rank + 1))[0])
    return {"buffers": after, "buffers_after_forward": fingerprint(replica.buffers())}


def main() -> None:
    torch.set_num_threads(1)
    found = {}
    for number, name in enumerate(name for name in Strategy if name.under_torchrun):
        processes = int(os.environ["WORLD_SIZE"])
        cell = cpu_cell(gpus=processes, strategy=name, device=Device.CPU)
        place = this_place(cell)
        strategy = STRATEGIES[name](cell, place, CPU)
        if number == 0:
            strategy.setup()
        for observed in (False, True):
            everyone = [None] * processes
            dist.all_gather_object(everyone, look(strategy, observed=observed))
            found[f"{name.value}{' observed' if observed else ''}"] = everyone
    cell = cpu_cell(gpus=processes, sync_buffers=SyncBuffers.SYNCBN)
    everyone = [None] * processes
    dist.all_gather_object(everyone, over_all_images(STRATEGIES[cell.strategy](cell, place, CPU)))
    found["SyncBatchNorm"] = everyone
    if dist.get_rank() == 0:
        print(json.dumps(found))  # noqa: T201  (what the test reads)
    dist.destroy_process_group()
    leave(0)  # as every rank of a cell does


if __name__ == "__main__":
    main()
