"""Gradient exchange of strategies, named by words, between real processes: run as ranks with -m.

Each rank takes its share of one global batch and makes two steps; rank 0 prints the results of all
ranks as JSON. The model has no BatchNorm, so one process on the global batch must end with the same
parameters. A second model has BatchNorm, to compare buffers; a third one is a transformer.
"""

import json
import os
import sys

import msgspec
import torch
import torch.distributed as dist
from torch import nn

from hpml_jobs.core.built_in import TransformerShape
from hpml_jobs.core.processes import leave
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.worker.instruments.collectives import Ledger, aggregate, fingerprint
from hpml_jobs.worker.instruments.timing import HostClock
from hpml_jobs.worker.models import token_cross_entropy
from hpml_jobs.worker.optimizer import make_optimizer, state_bytes
from hpml_jobs.worker.process_group import (
    COLLECTIVE_TIMEOUT,
    ParallelStrategy,
    Placement,
    SingleProcess,
    read_placement,
)
from hpml_jobs.worker.strategies import STRATEGIES

from .conftest import SMALL_DIGITS, cpu_cell, of_all_ranks

ADAMW = msgspec.structs.replace(
    SMALL_DIGITS, optimizer="adamw", lr=0.01, weight_decay=0.1
)

TORCHS = (Strategy.DDP, Strategy.ZERO1, Strategy.FSDP)
"""Strategies whose wrapper is torch's."""

SHARE = 6
"""Images per rank and step."""

CPU = (torch.device("cpu"),)

SHAPE = TransformerShape(layers=2, heads=2, width=8, context=6, vocab=11)


def make_model(seed: int, *, batchnorm: bool = False) -> nn.Module:
    torch.manual_seed(seed)
    norm = [nn.BatchNorm1d(16, dtype=torch.float64)] if batchnorm else []
    return nn.Sequential(
        nn.Linear(8, 16, dtype=torch.float64),
        *norm,
        nn.ReLU(),
        nn.Linear(16, 4, dtype=torch.float64),
    )


def batch_of(ranks: range) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(SHARE * 8, 8, generator=generator, dtype=torch.float64)
    rows = slice(ranks.start * SHARE, ranks.stop * SHARE)
    return images[rows], (images.sum(1).long() % 4).abs()[rows]


def train(
    strategy: ParallelStrategy, model: nn.Module, replica: nn.Module, ranks: range
) -> torch.optim.Optimizer:
    """Make two steps on the batch of these ranks."""
    optimizer = make_optimizer(strategy.cell, replica, strategy.sharded)
    images, targets = batch_of(ranks)
    for _ in range(2):
        nn.functional.cross_entropy(model(images), targets).backward()
        strategy.reduce_gradients(replica)
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def train_single_process(strategy: ParallelStrategy) -> nn.Module:
    """Train one process on the global batch, from rank 0's parameters, as a strategy's cell."""
    model = make_model(seed=0)
    single = SingleProcess(cpu_cell(strategy.cell.workload), Placement(0, 0, 1), CPU)
    train(single, model, model, range(strategy.placement.world_size))
    return model


def own_batch(strategy: ParallelStrategy) -> range:
    return range(strategy.placement.rank, strategy.placement.rank + 1)


def run_strategy(strategy: ParallelStrategy, *, instrumented: bool) -> dict:
    """Return what one strategy did on this rank."""
    placement = strategy.placement
    # ranks start differently: the strategy must fix it
    replica = make_model(seed=placement.rank)
    model = strategy.wrap(replica, instrumented=instrumented)
    strategy.ledger = Ledger(HostClock()) if instrumented else None
    optimizer = train(strategy, model, replica, own_batch(strategy))
    expected = train_single_process(strategy).parameters()
    shards = strategy.shard_facts(replica, optimizer)
    result = {
        "held": shards.held_elements,
        "expected": [
            [volume.kind, volume.purpose, volume.bytes] for volume in shards.expected
        ],
        "state": fingerprint(strategy.state(replica).values()),
        "optimizer_bytes": state_bytes(optimizer),
    }
    result["parameters"] = fingerprint(strategy.full_parameters(replica))
    result["error"] = max(
        float((parameter - reference).detach().abs().max())
        for parameter, reference in zip(
            strategy.full_parameters(replica), expected, strict=True
        )
    )
    if strategy.ledger:
        collectives, durations_s = (
            strategy.ledger.collectives,
            strategy.ledger.durations_s(),
        )
        messages = aggregate(collectives, durations_s)
        result["sent"] = [
            [m.kind, m.purpose, m.elements, m.bytes, m.count] for m in messages
        ]
        result["longest_s"] = max(durations_s)
        waits = strategy.ledger.waits
        result["waits"] = len(waits)
        result["waited_for"] = [
            any(wait.start <= entry.start and entry.end <= wait.end for wait in waits)
            for entry in collectives
        ]
    strategy.ledger = None
    return result | buffer_hashes(strategy)


def run_adamw(names: list[Strategy], processes: int, placement: Placement) -> dict:
    """Return what each of torch's strategies did with AdamW on this rank."""
    results = {}
    for name in (name for name in names if name in TORCHS):
        cell = cpu_cell(ADAMW, gpus=processes, strategy=name)
        strategy = STRATEGIES[name](cell, placement, CPU)
        results[name.value] = run_strategy(strategy, instrumented=False)
    return results


def buffer_hashes(strategy: ParallelStrategy) -> dict:
    """Return hashes of the BatchNorm buffers after two steps, and after one more forward."""
    replica = make_model(seed=0, batchnorm=True)
    model = strategy.wrap(replica)
    train(strategy, model, replica, own_batch(strategy))
    after = fingerprint(replica.buffers())
    model.eval()
    model(batch_of(own_batch(strategy))[0])
    return {"buffers": after, "buffers_after_forward": fingerprint(replica.buffers())}


def gpt_losses(strategy: ParallelStrategy, ranks: range) -> list[float]:
    """Return the losses of four steps of a transformer on the windows of these ranks."""
    from hpml_jobs.worker.gpt import GPT  # noqa: PLC0415 -- may be deleted

    torch.manual_seed(0)
    replica = GPT(SHAPE).double()
    model = strategy.wrap(replica)
    optimizer = make_optimizer(strategy.cell, replica, strategy.sharded)
    generator = torch.Generator().manual_seed(1)
    windows = torch.randint(
        SHAPE.vocab, (SHARE * 8, SHAPE.context + 1), generator=generator
    )
    part = windows[ranks.start * SHARE : ranks.stop * SHARE]
    losses = []
    for _ in range(4):
        loss = token_cross_entropy(model(part[:, :-1]), part[:, 1:])
        loss.backward()
        losses.append(loss.item())
        strategy.reduce_gradients(replica)
        optimizer.step()
        optimizer.zero_grad()
    return losses


def run_gpt(strategy: ParallelStrategy) -> dict:
    """Return the losses of a transformer on this rank, and of one process on the global batch."""
    single = SingleProcess(cpu_cell(), Placement(0, 0, 1), CPU)
    own, whole = own_batch(strategy), range(strategy.placement.world_size)
    return {
        "losses": gpt_losses(strategy, own),
        "expected": gpt_losses(single, whole),
    }


def main() -> None:
    torch.set_num_threads(1)
    results = {}
    processes = int(os.environ["WORLD_SIZE"])
    names = [Strategy(word) for word in sys.argv[1:]]
    for number, name in enumerate(names):
        cell = cpu_cell(gpus=processes, strategy=name, device=Device.CPU)
        placement = read_placement(cell)
        strategy = STRATEGIES[name](cell, placement, CPU)
        if number == 0:
            strategy.setup(COLLECTIVE_TIMEOUT)
        for instrumented in (False, True):
            label = f"{name.value}{' instrumented' if instrumented else ''}"
            results[label] = of_all_ranks(
                run_strategy(strategy, instrumented=instrumented)
            )
        results[f"gpt {name.value}"] = of_all_ranks(run_gpt(strategy))
    results["adamw"] = of_all_ranks(run_adamw(names, processes, placement))
    if dist.get_rank() == 0:
        print(json.dumps(results))  # noqa: T201  (the test reads it)
    dist.destroy_process_group()
    leave(0)  # as every rank of a cell does


if __name__ == "__main__":
    main()
