"""One rank of a cell from top to bottom: make ready, warm up, measure, test, leave the record."""

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import torch

from hpml_jobs.core.cell import CellFile, Device, Protocol
from hpml_jobs.core.measurements import TRAINING, UNSYNCED, Probe, Role, Trace
from hpml_jobs.core.quantization import Quantized
from hpml_jobs.core.record import Rank
from hpml_jobs.study.attempt import HOST_VARIABLE, AttemptFolder
from hpml_jobs.worker import models
from hpml_jobs.worker.devices import devices_for
from hpml_jobs.worker.epochs import Ran, instrumented_epoch, train_epoch
from hpml_jobs.worker.evaluation import test, test_share
from hpml_jobs.worker.instruments import facts
from hpml_jobs.worker.instruments.collectives import fingerprint
from hpml_jobs.worker.instruments.microbenchmark import all_reduce_times
from hpml_jobs.worker.instruments.profiler import NoProfileError, look_through_profiler
from hpml_jobs.worker.quantization.replica import quantize_replica
from hpml_jobs.worker.results import Common, Measured, ProgressWriter, write_record
from hpml_jobs.worker.strategies import STRATEGIES, this_place
from hpml_jobs.worker.training import Training, make_training


def measure(file: CellFile, folder: AttemptFolder) -> None:
    """Run one rank of the cell; rank 0 leaves the record in the attempt's folder."""
    cell = file.cell
    torch.set_num_threads(cell.threads)
    torch.set_num_interop_threads(cell.threads)
    place = this_place(cell)
    devices = devices_for(cell, place.local_rank)
    strategy = STRATEGIES[cell.strategy](cell, place, devices)
    strategy.setup()

    training = make_training(cell, strategy, Path(file.data_root))
    teller = ProgressWriter(folder, place.rank, cell.epochs)
    ran = train(training, teller)
    teller.begin("test")
    rank = describe_rank(training, ran)
    quantized: Quantized | None = None
    if cell.quantize is not None:  # one process; before the profiler's look trains it further
        teller.begin("quantizing")
        quantized = quantize_replica(training, cell.quantize)
    probe: Probe | None = None
    missing: list[str] = []
    flop: int | None = None
    if cell.protocol is Protocol.FULL:
        teller.begin("probing")
        if strategy.backend is not None and place.processes > 1:
            alone = train_epoch(training.throwaway(), cell.epochs, UNSYNCED)
            rank = msgspec.structs.replace(rank, epochs=(*rank.epochs, alone.epoch))
            probe = microbenchmark(training, rank)
        trace, missing = cross_check(training, folder, keep=file.trace)
        rank = msgspec.structs.replace(rank, trace=trace)
        flop = models.flop_per_sample(cell.workload, training.loss, training.samples)

    everyone = strategy.gather(Measured.of(rank, ran, missing))
    if everyone is not None:
        lost = [words for one in everyone for words in one.missing]
        model = models.describe(cell.workload.model, training.replica, flop)
        found = facts.gather(cell, strategy.backend, file.link_gb_per_s, lost)
        write_record(folder, file, everyone, Common(model, found, probe, quantized))
    strategy.close()


def train(training: Training, teller: ProgressWriter) -> list[Ran]:
    """All epochs of training: warm-up, timed, under protocol=full instrumented, the rest plain."""
    cell = training.cell
    ran: list[Ran] = []
    for number in range(cell.epochs):
        role = TRAINING[number] if number < cell.protocol.epochs else Role.PLAIN
        teller.begin(role, number + 1, ran[-1].epoch.epoch_s if ran else None)
        if role is Role.INSTRUMENTED:
            training.wrap_anew(observed=True)
            ran.append(instrumented_epoch(training, number, span=watched(training)))
            if number + 1 < cell.epochs:
                training.wrap_anew(observed=False)
        else:
            told = teller.counted if role is Role.WARMUP else None
            ran.append(train_epoch(training, number, role, told=told))
        if cell.evaluate:
            share = test_share(training)
            ran[-1] = ran[-1]._replace(epoch=msgspec.structs.replace(ran[-1].epoch, share=share))
    return ran


@contextmanager
def watched(training: Training) -> Iterator[None]:
    """Look at the GPUs when all work is sent, and they are still busy with it."""
    yield
    training.cards = facts.cards(training.strategy.devices)


def describe_rank(training: Training, ran: list[Ran]) -> Rank:
    """What this process measured and trained, and where; tests its replica."""
    cell, strategy, replica = training.cell, training.strategy, training.replica
    split_phases = next((one.split_phases for one in ran if one.split_phases), None)
    communicates = split_phases is not None and bool(split_phases.communication.messages)
    # Before the test: under ddp buffers differ between two iterations.
    parameters, buffers = fingerprint(replica.parameters()), fingerprint(replica.buffers())
    tested = test(training)
    return Rank(
        rank=strategy.place.rank,
        local_rank=strategy.place.local_rank,
        host=os.environ.get(HOST_VARIABLE) or socket.gethostname(),
        devices=facts.device_names(strategy.devices),
        device_uuids=facts.device_uuids(strategy.devices),
        affinity=facts.affinity(),
        threads=torch.get_num_threads(),
        loader_workers=cell.loader_workers,
        epochs=tuple(one.epoch for one in ran),
        test_loss=tested.loss,
        test_accuracy=tested.accuracy,
        test_samples=tested.samples,
        peak_memory_bytes=peak_memory_bytes(training),
        parameters_hash=parameters,
        buffers_hash=buffers,
        communication=split_phases.communication if split_phases and communicates else None,
        cards=training.cards,
    )


def microbenchmark(training: Training, rank: Rank) -> Probe | None:
    """All-reduces on idle devices, of the sizes that the cell itself sends and of a ladder."""
    messages = rank.communication.messages if rank.communication else ()
    sent = [message.bytes for message in messages if message.kind == "all_reduce"]
    return all_reduce_times(training.strategy.devices, sent, training.cell.probe_s)


def cross_check(
    training: Training, folder: AttemptFolder, *, keep: bool
) -> tuple[Trace | None, list[str]]:
    """The profiler's view of some more iterations, or why there is none."""
    path = folder.trace_of(training.strategy.place.rank) if keep else None
    if training.cell.epochs > training.cell.protocol.epochs:  # plain epochs took the eyes off
        training.wrap_anew(observed=True)
    try:
        return look_through_profiler(training, training.cell.epochs, path), []
    except NoProfileError as fault:  # CUPTI is not allowed everywhere, and never worth a run
        return None, [f"trace: {fault}"]


def peak_memory_bytes(training: Training) -> int:
    """The most that was in use: tensors on the fullest CUDA device, else this process's memory."""
    if training.cell.device is Device.CUDA:
        return max(torch.cuda.max_memory_allocated(device) for device in training.strategy.devices)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
