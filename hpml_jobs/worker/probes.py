"""The steps after training on which a trained cell does not depend: a failure leaves the record."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from hpml_jobs.core.measurements import Epoch, Microbenchmark, Role
from hpml_jobs.core.rank import Rank
from hpml_jobs.study.cell_folder import AttemptFolder
from hpml_jobs.worker.epochs import instrumented_epoch, train_epoch
from hpml_jobs.worker.fork_safety import await_idle_threads
from hpml_jobs.worker.instruments.timing import Devices, synchronize
from hpml_jobs.worker.microbenchmark import (
    SIZES,
    collective_times,
    sizes_sent,
)
from hpml_jobs.worker.process_group import ParallelStrategy
from hpml_jobs.worker.training import Training

Result = TypeVar("Result")


def probe(
    training: Training, rank: Rank, folder: AttemptFolder, *, keep_trace: bool
) -> tuple[Rank, dict[str, Any], list[str]]:
    """Run the steps after training, each of which may fail.

    Return the rank's part of the record with their results, parts of the record by field, and the
    reasons of what is missing.
    """
    steps = OptionalSteps(training.strategy)
    parts: dict[str, Any] = {}
    if training.strategy.placement.world_size > 1:
        epochs = (*rank.epochs, *unsynced_epoch(training, steps))
        rank = msgspec.structs.replace(rank, epochs=epochs)
        rank, parts = measure_collectives(training, rank, steps)
    if keep_trace:
        write_trace(training, folder.trace_of(rank.rank), steps)
    return rank, parts, steps.missing


def unsynced_epoch(training: Training, steps: "OptionalSteps") -> tuple[Epoch, ...]:
    """Train an epoch without gradient exchange; return nothing if a rank has no room for it."""
    what, number = "epoch without gradient exchange", training.cell.epochs
    alone = steps.attempt(what, training.without_exchange)
    if alone is None:
        return ()
    result = steps.attempt(
        what, lambda: train_epoch(alone, number, Role.UNSYNCED), keeps_cache=True
    )
    return (result.epoch,) if result else ()


def measure_collectives(
    training: Training, rank: Rank, steps: "OptionalSteps"
) -> tuple[Rank, dict[str, Any]]:
    """Return the rank's part of the record with the accounts of the step, and the microbenchmark.

    It is left out if its largest message does not fit, or it fails.
    """
    name = "microbenchmark"
    if not steps.attempt(name, lambda: allocate_messages(training)):
        return rank, {}
    before = training.scheduling.read()
    benchmark = steps.attempt(name, lambda: run_microbenchmark(training, rank))
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


def run_microbenchmark(training: Training, rank: Rank) -> Microbenchmark | None:
    """Time the cell's collectives at the sizes that it sends, then at a range of sizes."""
    strategy = training.strategy
    sent, budget_s = sizes_sent(rank.communication), training.cell.probe_s
    return collective_times(strategy.devices, sent, budget_s, clock_of=strategy.clock)


TRACED = 20
"""Iterations in a trace."""

MARK = "hpml_jobs iterations"
"""The annotation of them in the trace."""


def start_profiler(device: torch.device) -> profile:
    """Start the profiler for this process and its device, with the shapes of messages.

    Raises:
        Exception: the driver refuses it, which it may do in many ways.
    """
    if device.type == "cpu":
        # Keep its messages (no CUDA) out of the cell's log; with CUDA they say why a trace has no
        # events of the GPU.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    else:
        # to start it again may break CUDA graphs
        os.environ.setdefault("TEARDOWN_CUPTI", "0")
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if device.type == "cuda" else []
    # torch 2.11 warns at a start without acc_events; a stop with it takes 0.5 ms per operator.
    profiler = profile(activities=activities, record_shapes=True, acc_events=True)
    profiler.start()
    if profiler.profiler is not None:
        profiler.profiler.acc_events = False
    # Numbers and lists that operators are called with would take half as long as small operators.
    set_on = getattr(
        torch._C._profiler, "_set_record_concrete_inputs_enabled_val", None
    )
    if set_on is not None:
        set_on(False)
    return profiler


@contextmanager
def measured_window(devices: Devices) -> Iterator[None]:
    """Mark the part of the trace to evaluate: the block, until the devices are done."""
    with record_function(MARK):
        yield
        synchronize(devices)


def write_trace(training: Training, path: Path, steps: "OptionalSteps") -> None:
    """Write the trace of some more iterations as .json.gz, for Perfetto or chrome://tracing."""
    what, cell = "trace", training.cell

    def begin() -> tuple[Iterator[Any], profile]:
        if cell.epochs > cell.protocol.epochs:  # the plain epochs ran a bare wrapper
            training.rewrap(instrumented=True)
        training.warm()  # the cache of memory is empty
        await_idle_threads()
        batches = iter(training.batches(cell.epochs))
        return batches, start_profiler(training.strategy.devices[0])

    begun = steps.attempt(what, begin)
    if begun is None:
        return
    batches, profiler = begun

    def run() -> None:
        span = measured_window(training.strategy.devices)
        instrumented_epoch(
            training, cell.epochs, iterations=TRACED, span=span, batches=batches
        )
        profiler.stop()
        profiler.export_chrome_trace(str(path))

    steps.attempt(what, run, keeps_cache=True)


class OptionalSteps:
    """Runs steps that may fail, on all ranks; `missing` has the reason of each that did."""

    def __init__(self, strategy: ParallelStrategy) -> None:
        self._strategy = strategy
        self.missing: list[str] = []

    def attempt(
        self, what: str, step: Callable[[], Result], *, keeps_cache: bool = False
    ) -> Result | None:
        """Return the step's result; None on all ranks if it failed on one of them.

        Memory that torch keeps for later is given back first: at the largest batch it is all of the
        GPU, and NCCL and a second replica need some. With `keeps_cache` it stays: the step before
        has warmed it for this one. After a failure the ranks meet again, so a step must raise
        before its first collective, or on every rank, or come to every barrier.
        """
        if not keeps_cache:
            gc.collect()  # an exception's frames may have held tensors
            torch.cuda.empty_cache()
        result, reason = None, ""
        try:
            result = step()
        except Exception as error:  # whatever it is: the epochs have been measured
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        if self._strategy.all_agree(not reason):
            return result
        self.missing.append(f"{what}: {reason or 'failed on another rank'}")
        return None
