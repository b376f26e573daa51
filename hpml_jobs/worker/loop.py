"""One rank of a cell from top to bottom: set up, warm up, measure, evaluate, write the record."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import torch

from hpml_jobs.core.cell import CellFile, Protocol
from hpml_jobs.core.measurements import TRAINING, Role, Stage
from hpml_jobs.core.processes import KEPT_ALIVE
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Facts, Model
from hpml_jobs.study.cell_folder import AttemptFolder, host_name
from hpml_jobs.worker import models
from hpml_jobs.worker.data import datasets
from hpml_jobs.worker.data.user_code import check_imports
from hpml_jobs.worker.devices import devices_for
from hpml_jobs.worker.epochs import (
    EpochResult,
    evaluate,
    evaluate_share,
    instrumented_epoch,
    train_epoch,
)
from hpml_jobs.worker.instruments import facts
from hpml_jobs.worker.instruments.cards import CardReader, bind_to_near_cpus
from hpml_jobs.worker.instruments.collectives import fingerprint
from hpml_jobs.worker.instruments.recorder import StartupTimer, peak_memory_bytes
from hpml_jobs.worker.models import FlopCount, count_flop
from hpml_jobs.worker.optimizer import state_bytes
from hpml_jobs.worker.probes import probe
from hpml_jobs.worker.process_group import collective_timeout, read_placement
from hpml_jobs.worker.results import (
    ProgressWriter,
    RankResult,
    SharedResult,
    write_record,
)
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import Training, make_training


def measure(file: CellFile, folder: AttemptFolder) -> None:
    """Run one rank of the cell; rank 0 writes the record to the attempt's folder.

    Raises:
        HpmlError: the devices, the data, the model or the measured values are not valid.
    """
    cell, startup, before = file.cell, StartupTimer(), {*sys.modules}
    startup.end("imports_s")
    torch.set_num_threads(cell.threads)
    torch.set_num_interop_threads(cell.threads)
    placement = read_placement(cell)
    devices = devices_for(cell, placement.local_rank)
    if devices[0].type == "cuda":  # before the first thread and the first loader worker
        of_node = tuple(
            torch.device("cuda", number) for number in range(cell.gpus_per_node)
        )
        cards = CardReader(facts.device_uuids(of_node))
        bind_to_near_cpus(facts.device_uuids(devices), cards, cell.loader_workers)
    strategy = STRATEGIES[cell.strategy](cell, placement, devices)
    strategy.setup(collective_timeout(file.shape.minutes if file.shape else None))

    startup.end("process_group_s")
    training = make_training(cell, strategy, Path(file.data_root), startup)
    KEPT_ALIVE.append(training)
    startup.end("model_s")
    cell_facts = Facts()
    if placement.rank == 0:  # before training: after it all GPUs would wait for git
        datasets.check_unchanged(cell.workload, Path(file.data_root))
        imported, packages = check_imports(cell.workload, before)
        cell_facts = msgspec.structs.replace(
            facts.read_facts(file, strategy.backend),
            text=datasets.describe(
                cell.workload, training.loader.dataset, training.test_images
            ),
            packages=packages,
            imported=imported,
        )
    startup.end("facts_s")
    progress = ProgressWriter(folder, placement.rank, cell.epochs)
    results = train(training, progress)
    progress.begin(Stage.TEST)
    rank = describe_rank(training, results)
    rank = msgspec.structs.replace(rank, startup=startup.summary(results[0].times))
    parts: dict[str, Any] = {}
    if (
        cell.quantize is not None
    ):  # one process; before the steps that train the replica further
        from hpml_jobs.worker.quantization.steps import quantize_replica  # noqa: PLC0415

        progress.begin(Stage.QUANTIZING)
        parts["quantized"] = quantize_replica(training)
    flop = FlopCount(None)
    if placement.rank == 0:  # the model is the same on all ranks
        flop = count_flop(cell.workload, training.loss, training.sample_batch)
    model = describe_model(training, flop.per_sample)
    shared = SharedResult(model, cell_facts, parts)
    reasons = list(flop.missing)
    if cell.protocol is Protocol.FULL:
        # If the job ends in the steps that follow, the measured epochs are not lost.
        result = RankResult.of(rank, results, [*reasons, *unread(training)])
        write_record(strategy, folder, file, result, shared)
        progress.begin(Stage.PROBING)
        rank, probed, not_measured = probe(
            training, rank, folder, keep_trace=file.trace
        )
        shared = shared._replace(parts=parts | probed)
        reasons += not_measured
    result = RankResult.of(rank, results, [*reasons, *unread(training)])
    write_record(strategy, folder, file, result, shared)
    strategy.close()


def unread(training: Training) -> list[str]:
    """Return one reason for each value of the machine that could not be read."""
    return [
        *training.scheduling.missing,
        *training.energy.missing,
        *training.cards.missing,
    ]


def train(training: Training, progress: ProgressWriter) -> list[EpochResult]:
    """Run all epochs of training: warm-up, timed, with protocol=full instrumented, then plain."""
    cell = training.cell
    results: list[EpochResult] = []
    for number in range(cell.epochs):
        role = TRAINING[number] if number < cell.protocol.epochs else Role.PLAIN
        progress.begin(
            Stage(role), number + 1, results[-1].epoch.epoch_s if results else None
        )
        if role is Role.INSTRUMENTED:
            training.rewrap(instrumented=True)
            results.append(instrumented_epoch(training, number))
            if number + 1 < cell.epochs:
                training.rewrap(instrumented=False)
        else:
            counter = progress.count_batches if role is Role.WARMUP else None
            results.append(train_epoch(training, number, role, count_batches=counter))
        if role is Role.WARMUP:
            training.settle(results[-1].epoch.iterations)
        if role is Role.TIMED:  # between two epochs: it costs none of them
            training.cards.read()
        if cell.evaluate:
            share = evaluate_share(training)
            epoch = msgspec.structs.replace(results[-1].epoch, share=share)
            results[-1] = results[-1]._replace(epoch=epoch)
    return results


def describe_rank(training: Training, results: list[EpochResult]) -> Rank:
    """Return this rank's part of the record after training; evaluates its replica."""
    cell, strategy, replica = training.cell, training.strategy, training.replica
    phases = next((result.phases for result in results if result.phases), None)
    communicates = phases is not None and bool(phases.communication.messages)
    shards = strategy.shard_facts(replica, training.optimizer)
    # Before the evaluation: under ddp buffers differ between two iterations.
    parameters = fingerprint(strategy.full_parameters(replica))
    buffers = fingerprint(replica.buffers())
    evaluation = evaluate(training)
    epochs = tuple(result.epoch for result in results)
    return Rank(
        rank=strategy.placement.rank,
        local_rank=strategy.placement.local_rank,
        host=host_name(),
        devices=facts.device_names(strategy.devices),
        device_uuids=facts.device_uuids(strategy.devices),
        affinity=facts.affinity(),
        threads=torch.get_num_threads(),
        loader_workers=cell.loader_workers,
        epochs=epochs,
        test_loss=evaluation.loss,
        test_accuracy=evaluation.accuracy,
        test_samples=evaluation.samples,
        held_elements=shards.held_elements,
        peak_memory_bytes=peak_memory_bytes(
            next(epoch.memory for epoch in epochs if epoch.role is Role.TIMED)
        ),
        optimizer_state_bytes=state_bytes(training.optimizer),
        parameters_hash=parameters,
        buffers_hash=buffers,
        initial_hash=training.initial_hash,
        communication=phases.communication if phases and communicates else None,
        cards=training.cards.state,
        node=facts.read_node(cell.device)
        if strategy.placement.local_rank == 0
        else None,
    )


def describe_model(training: Training, flop_per_sample: int | None) -> Model:
    """Return the facts of the trained model, with what the strategy must send of it."""
    model = models.describe(
        training.cell.workload.model, training.replica, flop_per_sample
    )
    shards = training.strategy.shard_facts(training.replica, training.optimizer)
    return msgspec.structs.replace(
        model, expected=shards.expected, shard_groups=shards.groups
    )
