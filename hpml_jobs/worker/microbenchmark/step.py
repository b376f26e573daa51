"""The step after training that times the collectives of a cell, on every rank."""

from typing import Any

import msgspec
import torch

from hpml_jobs.core.measurements import Microbenchmark
from hpml_jobs.core.rank import Rank
from hpml_jobs.worker.microbenchmark.collectives import (
    SIZES,
    collective_times,
    sizes_sent,
    with_nccl_choices,
)
from hpml_jobs.worker.probes import Probing
from hpml_jobs.worker.training import Training

NAME = "microbenchmark"


def measure_collectives(probing: Probing) -> tuple[Rank, dict[str, Any]]:
    """Return the rank's part of the record with the accounts of the step, and the microbenchmark.

    It is left out where the ranks exchange nothing.
    """
    training, rank, steps = probing.training, probing.rank, probing.steps
    if training.strategy.placement.world_size == 1:
        return rank, {}
    if not steps.attempt(NAME, lambda: allocate_messages(training)):
        return rank, {}
    before = training.scheduling.read()
    benchmark = steps.attempt(NAME, lambda: run_microbenchmark(probing))
    if benchmark is None:
        return rank, {}
    accounts = training.scheduling.since(before)
    rank = msgspec.structs.replace(rank, microbenchmark_scheduling=accounts)
    return rank, {"microbenchmark": benchmark}


def allocate_messages(training: Training) -> bool:
    """Allocate the largest message, received and sent, and release it; raise if it does not fit.

    It is not tried on the CPU, where memory is taken when it is written.
    """
    for gpu in training.strategy.gpus:
        torch.empty((2, max(SIZES)), dtype=torch.uint8, device=gpu)
    return True


def run_microbenchmark(probing: Probing) -> Microbenchmark | None:
    """Time the cell's collectives at the sizes that it sends, then at a range of sizes."""
    strategy = probing.training.strategy
    devices, sent = strategy.devices, sizes_sent(probing.rank.communication)
    budget_s = probing.training.cell.probe_s
    benchmark = collective_times(devices, sent, budget_s, clock_of=strategy.clock)
    if benchmark is None or strategy.backend != "nccl":
        return benchmark
    benchmark, reason = with_nccl_choices(benchmark, devices, probing.folder.nccl_log)
    if reason:
        probing.steps.missing.append(reason)
    return benchmark
