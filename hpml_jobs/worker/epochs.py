"""One pass over the training images: the loop itself, and what it showed."""

import itertools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.formulas import closure
from hpml_jobs.core.measurements import Epoch, Role, Steps
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.fork_safety import await_idle_threads
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.phases import Anatomy, IterationMarks, split_phases
from hpml_jobs.worker.instruments.timing import (
    Clock,
    Seconds,
    Stamp,
    Times,
    Window,
    clock_for,
    read_times,
)
from hpml_jobs.worker.training import Training

STAMPS = 24
"""CUDA events made beforehand per instrumented iteration; more are made when they are needed."""


Told = Callable[[Iterable[Any], int], Iterable[Any]]
"""Passes on an epoch's batches, of which there are so many, and counts them aloud."""


class Instruments(NamedTuple):
    """What an epoch is watched with: a clock, and whether it stamps every phase (`fine`).

    `iterations` are how many are run; `span` is held open from the first to the last of them.
    `told` counts them aloud, where that disturbs no measurement. `batches` come from loader workers
    that run already; without it the epoch starts its own.
    """

    clock: Clock
    iterations: int
    fine: bool = False
    span: AbstractContextManager[None] = nullcontext()
    told: Told | None = None
    batches: Iterable[Any] | None = None


class Lap(NamedTuple):
    """What an epoch left: its window and moments; losses, samples, learning rates by iteration.

    `correct` are hits in all, None where outputs are not class scores; `order` is the hash of the
    images' order.
    """

    window: Window
    moments: list[list[Stamp]]
    losses: Tensor
    correct: int | None
    sizes: list[int]
    rates: list[float]
    order: str


class Ran(NamedTuple):
    """One epoch of one rank; `split_phases` where it was instrumented, `ledger` its collectives."""

    epoch: Epoch
    times: Times
    losses: Tensor
    rates: list[float]
    split_phases: Anatomy | None = None
    ledger: Ledger | None = None


def train_epoch(training: Training, number: int, role: Role, *, told: Told | None = None) -> Ran:
    """Train one epoch with two stamps per iteration and no other instrument."""
    iterations = len(training.loader)
    clock = clock_for(training.strategy.devices, 2 * iterations + 2)
    lap = _run(training, number, Instruments(clock, iterations, told=told))
    times = read_times(clock, lap.window, lap.moments)
    return Ran(summarise(training.cell, role, lap, times), times, lap.losses, lap.rates)


def instrumented_epoch(
    training: Training,
    number: int,
    *,
    iterations: int | None = None,
    span: AbstractContextManager[None] | None = None,
    batches: Iterable[Any] | None = None,
) -> Ran:
    """Train one epoch, or its first iterations, with all phases stamped and collectives noted.

    With `iterations` it is a look at more of the same, told as a plain epoch.
    """
    role = Role.PLAIN if iterations else Role.INSTRUMENTED
    strategy, count = training.strategy, len(training.loader)
    count = min(iterations or count, count)
    clock = clock_for(strategy.devices, STAMPS * count + 2)
    strategy.ledger = ledger = Ledger(clock)
    held = span or nullcontext()
    instruments = Instruments(clock, count, fine=True, span=held, batches=batches)
    try:
        lap = _run(training, number, instruments)
    finally:
        strategy.ledger = None
    times = read_times(clock, lap.window, lap.moments)
    moments = [IterationMarks(*those) for those in lap.moments]
    found = split_phases(lap.window, moments, ledger, overlaps=strategy.overlaps)
    epoch = summarise(training.cell, role, lap, times, found)
    return Ran(epoch, times, lap.losses, lap.rates, found, ledger)


def _run(training: Training, number: int, instruments: Instruments) -> Lap:
    """The loop; nothing in it waits for the device.

    Each iteration has two moments, the batch is there and the step is done; with fine instruments
    the six of `IterationMarks`.
    """
    t, device, fine = training, training.strategy.devices[0], instruments.fine
    stamp, ledger, count = instruments.clock.stamp, t.strategy.ledger, instruments.iterations
    batches = t.batches(number) if instruments.batches is None else instruments.batches
    t.model.train()
    losses = torch.zeros(count, device=device)
    correct = torch.zeros((), dtype=torch.int64, device=device)
    sizes: list[int] = []
    rates: list[float] = []
    moments: list[list[Stamp]] = []
    if count != len(t.loader):
        batches = itertools.islice(batches, count)
    if instruments.told:
        batches = instruments.told(batches, count)
    await_idle_threads()
    window = Window(t.strategy.devices, instruments.clock, t.strategy.barrier)
    with window, instruments.span:
        for index, (images, targets) in enumerate(batches):
            those = [stamp()]
            if ledger:
                ledger.iteration = index
            inputs = images.to(device, non_blocking=True)
            wanted = targets.to(device, non_blocking=True)
            if fine:
                those.append(stamp())
            outputs = t.model(inputs)
            loss = t.loss(outputs, wanted)
            if fine:
                those.append(stamp())
            loss.backward()  # type: ignore[no-untyped-call]
            if fine:
                those.append(stamp())
            if t.exchanges:
                t.strategy.exchange(t.replica)
            if fine:
                those.append(stamp())
            rates.append(t.optimizer.param_groups[0]["lr"])
            t.optimizer.step()
            t.optimizer.zero_grad()
            if t.schedule:
                t.schedule.step()
            losses[index] = loss.detach()
            correct += count_correct(outputs, wanted)
            sizes.append(len(targets))
            those.append(stamp())
            moments.append(those)
    t.last = (inputs, wanted)
    hits = int(correct.item()) if tells_classes(outputs, wanted) else None
    return Lap(window, moments, losses.cpu(), hits, sizes, rates, t.order.digest())


def count_correct(outputs: Tensor, targets: Tensor) -> Tensor:
    """How many of a batch are right, on the device; 0 where these are not classes."""
    if not tells_classes(outputs, targets):
        return targets.new_zeros((), dtype=torch.int64)
    return (outputs.detach().argmax(1) == targets).sum()


def tells_classes(outputs: Tensor, targets: Tensor) -> bool:
    """Whether outputs are class scores, and targets the numbers of classes."""
    return outputs.ndim == 2 and targets.ndim == 1 and not targets.is_floating_point()


def summarise(
    cell: Cell, role: Role, lap: Lap, times: Times, found: Anatomy | None = None
) -> Epoch:
    """The epoch as this rank saw it; loss and accuracy are means over the samples seen."""
    bad = torch.nonzero(~torch.isfinite(lap.losses)).flatten()
    if len(bad):
        raise HpmlError(
            f"the loss is not finite from iteration {int(bad[0]) + 1} of the {role} epoch on "
            f"(batch={cell.batch} x gpus={cell.gpus}, lr={lap.rates[int(bad[0])]:g}): "
            f"take a smaller one, e.g. workload.lr={cell.workload.lr / 10:g}"
        )
    samples = sum(lap.sizes)
    weights = torch.tensor(lap.sizes, dtype=torch.float64)
    epoch_s, phases = lap.window.epoch_s, found.phases if found else None
    # Device and host clocks differ in the last digits: the part never exceeds the whole.
    stall_s = min(float(times.stall_s.sum()) + times.last_stall_s, epoch_s)
    return Epoch(
        role=role,
        epoch_s=epoch_s,
        stall_s=stall_s,
        iterations=len(lap.sizes),
        samples=samples,
        loss=float(lap.losses.double() @ weights) / samples,
        accuracy=None if lap.correct is None else lap.correct / samples,
        steps=steps_of(times.step_s),
        phases=phases,
        closure=closure(epoch_s, phases.parts_s) if phases else None,
        order=lap.order,
        lr=(lap.rates[0], lap.rates[-1]),
    )


def steps_of(step_s: Seconds) -> Steps:
    """Percentiles of the iterations' times, and medians of the first and the last tenth."""
    tenth = max(1, len(step_s) // 10)
    p10_s, median_s, p90_s = (float(np.percentile(step_s, share)) for share in (10, 50, 90))
    return Steps(
        median_s=median_s,
        p10_s=p10_s,
        p90_s=p90_s,
        first_tenth_s=float(np.median(step_s[:tenth])),
        last_tenth_s=float(np.median(step_s[-tenth:])),
    )
