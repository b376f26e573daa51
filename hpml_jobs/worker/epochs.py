"""The training loop of one epoch, the summary of what it measured, and the test of a replica."""

import gc
import itertools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.measurements import (
    Energy,
    Epoch,
    EvaluationShare,
    Memory,
    Phases,
    Role,
    Scheduling,
)
from hpml_jobs.worker.data import datasets
from hpml_jobs.worker.data.loaders import BatchLoader
from hpml_jobs.worker.fork_safety import await_idle_threads
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.phases import EpochPhases, split_phases
from hpml_jobs.worker.instruments.recorder import (
    BareRecorder,
    IterationMarks,
    PhaseRecorder,
)
from hpml_jobs.worker.instruments.summary import time_epoch
from hpml_jobs.worker.instruments.timing import (
    IterationTimes,
    Stamp,
    Window,
    read_times,
)
from hpml_jobs.worker.path_steps import MicroSteps
from hpml_jobs.worker.training import Training, preserved_buffers

OUTSIDE = 2
"""Stamps of an epoch outside of its iterations: the ends of its window."""

BatchCounter = Callable[[Iterable[Any], int], Iterable[Any]]
"""Passes on the batches of an epoch, given their number, and reports how many have gone through."""


class RawEpoch(NamedTuple):
    """The output of the loop; lists and `losses` have one value per iteration.

    `marks` are the stamps of each iteration, `samples` its number of samples, `rates` its learning
    rate. `correct` is the number of correct samples of the epoch, None if outputs are not class
    scores. `order` is the hash of the order of the images. `scheduling` is the operating system's
    account of the epoch, `energy` and `memory` are of the GPUs. `launch_s` is the least time in
    which the host launched an iteration.
    """

    window: Window
    marks: list[list[Stamp]]
    losses: Tensor
    correct: int | None
    samples: list[int]
    rates: list[float]
    order: str
    scheduling: Scheduling | None = None
    energy: tuple[Energy, ...] | None = None
    memory: Memory | None = None
    launch_s: float | None = None


class EpochResult(NamedTuple):
    """One epoch on one rank; an instrumented one has `phases` and the `ledger` of collectives."""

    epoch: Epoch
    times: IterationTimes
    losses: Tensor
    rates: list[float]
    phases: EpochPhases | None = None
    ledger: Ledger | None = None


def train_epoch(
    training: Training,
    number: int,
    role: Role,
    *,
    count_batches: BatchCounter | None = None,
) -> EpochResult:
    """Train one epoch with two stamps per iteration and no other instrument.

    `count_batches` may report progress where that does not disturb a measurement.
    """
    micro_steps = training.micro_steps()
    clock = training.strategy.clock(BareRecorder.STAMPS * micro_steps.count + OUTSIDE)
    batches = training.batches(number)
    if count_batches:
        batches = count_batches(batches, micro_steps.count)
    raw = _run_accounted(training, batches, micro_steps, BareRecorder(clock))
    times = micro_steps.times(read_times(clock, raw.window, raw.marks))
    epoch = summarize_epoch(training.cell, role, raw, times)
    return EpochResult(epoch, times, raw.losses, raw.rates)


def instrumented_epoch(
    training: Training,
    number: int,
    *,
    iterations: int | None = None,
    span: AbstractContextManager[None] | None = None,
    batches: Iterable[Any] | None = None,
) -> EpochResult:
    """Train one epoch, or its first `iterations`, with all phases stamped and collectives recorded.

    `span` is held open from the first to the last iteration. `batches` are those of
    a pass that has begun; by default the epoch begins its own. A partial one has the role `plain`.
    """
    role = Role.PLAIN if iterations else Role.INSTRUMENTED
    strategy, micro_steps = training.strategy, training.micro_steps(iterations)
    per_step = PhaseRecorder.STAMPS + strategy.stamps_of_messages(training.replica)
    clock = strategy.clock(per_step * micro_steps.count + OUTSIDE)
    batches = training.batches(number) if batches is None else batches
    strategy.ledger = ledger = Ledger(clock)
    try:
        raw = _run_accounted(
            training, batches, micro_steps, PhaseRecorder(clock, ledger), span
        )
    finally:
        strategy.ledger = None
    times = micro_steps.times(read_times(clock, raw.window, raw.marks))
    marks = [IterationMarks(*step) for step in raw.marks]
    accumulate = training.cell.path.accumulate
    phases = split_phases(
        raw.window, marks, ledger, overlaps=strategy.overlaps, accumulate=accumulate
    )
    epoch = summarize_epoch(training.cell, role, raw, times, phases.phases)
    return EpochResult(epoch, times, raw.losses, raw.rates, phases, ledger)


def _run_accounted(
    training: Training,
    batches: Iterable[Any],
    micro_steps: MicroSteps,
    recorder: BareRecorder,
    span: AbstractContextManager[None] | None = None,
) -> RawEpoch:
    """Run the micro-steps between two readings of the system's and the GPUs' counters.

    Both are read before the barrier at which the epoch starts, and after the one at which it ends.
    """
    gc.collect()  # garbage of the epoch before holds no memory of the GPU in this one
    training.strategy.barrier()
    training.memory.start()
    energy_before = training.energy.read()
    before = training.scheduling.read()
    raw = _run(training, batches, micro_steps, recorder, span)
    scheduling = training.scheduling.since(before)
    energy = training.energy.since(energy_before)
    memory = training.memory.since_start()
    return raw._replace(
        scheduling=scheduling,
        energy=energy,
        memory=memory,
    )


def _run(
    training: Training,
    batches: Iterable[Any],
    micro_steps: MicroSteps,
    recorder: BareRecorder,
    span: AbstractContextManager[None] | None = None,
) -> RawEpoch:
    """Run the micro-steps; nothing in the loop waits for the device.

    Each mark ends a phase of `IterationMarks`; in a bare epoch it does nothing. Without
    accumulation a micro-step is an iteration.
    """
    count = micro_steps.count
    strategy = training.strategy
    training.model.train()
    losses: list[Tensor] = []  # lists: adding up would be one operator more
    correct: list[Tensor] = []
    samples: list[int] = []
    rates: list[float] = []
    if count != len(training.loader):
        batches = itertools.islice(batches, count)
    await_idle_threads()
    alone = not training.reduces_gradients
    window = Window(recorder.clock, strategy.barrier, ranks_are_alone=alone)
    with window, span or nullcontext():
        for index, batch in enumerate(batches):
            recorder.begin(index)
            inputs, labels = training.to_device(batch)
            recorder.mark()  # copied
            is_last = micro_steps.ends_iteration(index)
            with (
                strategy.exchange(training.model, in_backward=is_last),
                training.steps.forward(),
            ):
                outputs = training.model(inputs)
                loss = training.loss(outputs, labels)
            recorder.mark()  # forward
            training.steps.backward(loss, micro_steps.weight(index, len(labels)))
            recorder.mark()  # backward
            if is_last and training.reduces_gradients:
                strategy.reduce_gradients(training.replica)
            recorder.mark()  # exchanged
            if is_last:
                rates.append(training.optimizer.param_groups[0]["lr"])
                training.steps.step(training.optimizer)
                training.optimizer.zero_grad()
                if training.schedule:
                    training.schedule.step()
            losses.append(loss.detach())
            if are_class_scores(outputs, labels):
                correct.append(count_correct(outputs, labels))
            samples.append(len(labels))
            # the logits of a GPT are GB, which the next forward can use
            del outputs, loss
            recorder.end()
    training.last_batch = (inputs, labels)
    hits = int(torch.stack(correct).sum()) if correct else None
    epoch_losses = torch.stack(losses).float().cpu()
    mean_losses = micro_steps.mean_losses(epoch_losses, samples)
    launch_s = (
        micro_steps.least_sum(recorder.launches_s)
        if recorder.clock.runs_behind_host
        else None
    )
    return RawEpoch(
        window,
        recorder.marks,
        mean_losses,
        hits,
        micro_steps.sample_sums(samples),
        rates,
        training.order.digest(),
        launch_s=launch_s,
    )


def count_correct(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the number of correct samples, on the device, of class scores (n, classes)."""
    return (outputs.argmax(1) == targets).sum()


def are_class_scores(outputs: Tensor, targets: Tensor) -> bool:
    """Return whether outputs are class scores (n, classes) and targets class numbers (n,)."""
    return outputs.ndim == 2 and targets.ndim == 1 and not targets.is_floating_point()


def summarize_epoch(
    cell: Cell,
    role: Role,
    raw: RawEpoch,
    times: IterationTimes,
    phases: Phases | None = None,
) -> Epoch:
    """Return the epoch as this rank measured it; loss and accuracy are means over its samples.

    Raises:
        HpmlError: a loss is NaN or infinite.
    """
    diverged = torch.nonzero(~torch.isfinite(raw.losses)).flatten()
    if len(diverged):
        iteration = int(diverged[0])
        raise HpmlError(
            f"training diverged: the loss is not finite from iteration {iteration + 1} of the "
            f"{role} epoch (batch={cell.batch} x gpus={cell.gpus}, lr={raw.rates[iteration]:g}): "
            f"use a smaller learning rate, e.g. workload.lr={cell.workload.lr / 10:g}"
        )
    weights = torch.tensor(raw.samples, dtype=torch.float64)
    samples = sum(raw.samples)
    return msgspec.structs.replace(
        time_epoch(role, raw.window, times, raw.samples, phases),
        loss=float(raw.losses.double() @ weights) / samples,
        accuracy=None if raw.correct is None else raw.correct / samples,
        order=raw.order,
        lr=(raw.rates[0], raw.rates[-1]),
        scheduling=raw.scheduling,
        energy=raw.energy,
        memory=raw.memory,
        launch_s=raw.launch_s,
    )


class Evaluation(NamedTuple):
    """Mean loss and accuracy on the whole test set; None and 0 samples if there is none.

    The accuracy is None too if outputs are not class scores.
    """

    loss: float | None = None
    accuracy: float | None = None
    samples: int = 0


def evaluate(training: Training) -> Evaluation:
    """Evaluate this rank's replica on the whole test set."""
    images = training.loading.test_loader()
    total = None if images is None else _evaluate_on(training, images)
    if total is None or not total.samples:
        return Evaluation()
    accuracy = None if total.correct is None else total.correct / total.samples
    return Evaluation(total.loss_sum / total.samples, accuracy, total.samples)


def evaluate_share(training: Training) -> EvaluationShare | None:
    """Evaluate this rank's replica on its share of the test set; return None without a test set.

    Training is not affected: buffers and random state are restored.
    """
    rank, _, world_size = training.strategy.placement
    share = training.loading.test_loader(rank, world_size)
    if share is None:
        return None
    gpus = training.strategy.gpus
    with preserved_buffers(training.replica), datasets.preserved_random_state(gpus):
        return _evaluate_on(training, share)


def _evaluate_on(training: Training, images: BatchLoader) -> EvaluationShare:
    """Return summed loss and correct samples of the replica; 0 samples without images.

    Ranks may have different numbers of batches: no rank waits for another one in forward.
    """
    device = training.strategy.devices[0]
    samples, classifies = 0, True
    with torch.no_grad(), training.strategy.whole(training.replica):
        training.strategy.sync_buffers(training.replica)
        loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        correct = torch.zeros((), dtype=torch.int64, device=device)
        training.replica.eval()
        await_idle_threads()
        for batch in images:
            inputs, labels = images.to_device(batch)
            with training.steps.forward():
                outputs = training.replica(training.steps.in_layout(inputs))
                loss = training.loss(outputs, labels)
            loss_sum += loss * len(labels)
            samples += len(labels)
            classifies = classifies and are_class_scores(outputs, labels)
            if classifies:
                correct += count_correct(outputs, labels)
        hits = int(correct.item()) if classifies else None
        return EvaluationShare(loss_sum=loss_sum.item(), correct=hits, samples=samples)
