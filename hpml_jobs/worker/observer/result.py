"""What a process of a script writes: its part of the record, its progress, its error."""

import io
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import _get_default_store

from hpml_jobs.core.cell import Cell, CellFile
from hpml_jobs.core.gpus import Card
from hpml_jobs.core.measurements import Communication, Epoch, Role, Stage
from hpml_jobs.core.processes import leave
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Facts, Model
from hpml_jobs.core.script import Script
from hpml_jobs.core.source_files import imported_code, without_files
from hpml_jobs.core.stack_files import HOST_VARIABLE
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.text import raised
from hpml_jobs.study.cell_folder import (
    AttemptFolder,
    CellFolder,
    Progress,
    RankError,
    host_name,
    utc_now,
)
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.worker.failure import describe, write_report
from hpml_jobs.worker.instruments import facts
from hpml_jobs.worker.instruments.collectives import Ledger, fingerprint
from hpml_jobs.worker.instruments.phases import EpochPhases
from hpml_jobs.worker.observer.calls import WatchedModel
from hpml_jobs.worker.observer.iterations import Iterations
from hpml_jobs.worker.observer.process import (
    Start,
    global_rank,
    has_group,
    world_size,
)
from hpml_jobs.worker.observer.recording import Kind
from hpml_jobs.worker.observer.refusals import Observed
from hpml_jobs.worker.observer.together import SAMPLES
from hpml_jobs.worker.results import Arrays, instrumented_arrays, timed_arrays

END_S = 10.0
"""How long a process waits for the others before it is ended; all that was measured is written."""

FINGERPRINT_BYTES = 2**26
"""Parameters of at most so many bytes are compared between ranks: it takes 0.1 s."""


class MeasuredWindow(NamedTuple):
    """A window that was measured; `events` were seen in it, those of tests too."""

    epoch: Epoch
    iterations: Iterations
    batches: int
    events: int
    phases: EpochPhases | None = None


class Subject(NamedTuple):
    """What a session measures: the script of a cell, in an attempt."""

    start: Start
    folder: AttemptFolder
    file: CellFile
    script: Script

    @classmethod
    def read(cls, start: Start) -> "Subject":
        """Return that of this process."""
        folder = AttemptFolder(Path(start.folder))
        file = CellFolder(folder.cell_folder).read()
        if file.cell.script is None:
            raise ValueError(f"{folder.cell_folder} is not the cell of a script")
        return cls(start, folder, file, file.cell.script)

    @property
    def cell(self) -> Cell:
        """The cell."""
        return self.file.cell

    @property
    def batch_size(self) -> int | None:
        """The samples that a process trains at once, as the user says it; None of tokens."""
        if self.cell.workload.samples_are_tokens:
            return None
        return self.cell.global_batch // self.cell.processes


@dataclass(frozen=True)
class Findings:
    """What is known of a training when it is written.

    `results` are those of the windows that count, `passes` the batches of all, `steps` the
    iterations of all, `missing` a reason for each value that could not be measured.
    """

    results: Sequence[MeasuredWindow]
    passes: Sequence[int]
    steps: int
    window: tuple[int, int] | None
    model: WatchedModel
    ledger: Ledger | None
    loader_workers: int
    cards: tuple[Card, ...]
    missing: Sequence[str]


class Writer:
    """Writes what a process saw of a training; made at the first step."""

    def __init__(self, subject: Subject, device: torch.device) -> None:
        self._subject = subject
        self._folder = subject.folder
        self._device = device
        self._rank = global_rank(subject.start)
        self._world_size = world_size()  # the script may leave its group
        self._parameters_hash = ""
        self._progress = Progress(epochs=subject.cell.epochs)
        self._name = f"rank{self._rank}-{os.getpid()}"
        self._facts = None if self._rank else _read_facts(subject)
        environment = subject.start.environment
        local_rank = environment.get("LOCAL_RANK") or environment.get("SLURM_LOCALID")
        self._local_rank = int(local_rank or device.index or 0)
        self._node = None if self._local_rank else facts.read_node(subject.cell.device)
        self._folder.observed.mkdir(parents=True, exist_ok=True)

    def report(self, role: Role, results: Sequence[MeasuredWindow]) -> None:
        """Report the window that begins for `status`; rank 0 does."""
        if self._rank == 0 and self._progress.role != Stage(role):
            self._progress = Progress(
                epoch=len(results) + 1,
                epochs=max(self._progress.epochs, len(results) + 1),
                role=Stage(role),
                since=utc_now(),
                last_s=results[-1].epoch.epoch_s if results else None,
            )
            write_whole(self._folder.progress, encode(self._progress), sync=False)

    def fingerprint(self, model: WatchedModel) -> None:
        """Keep the fingerprint of the parameters as they are now, unless it takes long."""
        if model.wrapper is Strategy.FSDP:
            return
        parameters = model.parameters
        size = sum(p.numel() * p.element_size() for p in parameters)
        # no DTensor
        is_replica = all(type(p.data) is torch.Tensor for p in parameters)
        if is_replica and size <= FINGERPRINT_BYTES:
            self._parameters_hash = fingerprint(parameters)

    def write(self, findings: Findings, *, is_cut: bool = False) -> None:
        """Write all that is known, without waiting for the disk."""
        arrays = _arrays(findings)
        if arrays:
            content = io.BytesIO()
            np.savez(content, **arrays)  # type: ignore[arg-type]  # savez has an option that is a bool
            path = self._folder.observed / f"{self._name}.npz"
            write_whole(path, content.getvalue(), sync=False)
        observed = Observed(
            rank=self._describe_rank(findings),
            world_size=self._world_size,
            wrapper=findings.model.wrapper,
            model=_describe_model(findings.model),
            steps=findings.steps,
            window=findings.window,
            passes=tuple(findings.passes),
            batches=_sizes_of_batches(findings),
            facts=self._facts
            and msgspec.structs.replace(
                self._facts, in_windows=findings.window is not None
            ),
            missing=tuple(findings.missing),
            is_cut=is_cut,
        )
        path = self._folder.observed / f"{self._name}.json"
        write_whole(path, encode(observed), sync=False)

    def _describe_rank(self, findings: Findings) -> Rank:
        epochs = tuple(result.epoch for result in findings.results)
        return Rank(
            rank=self._rank,
            local_rank=self._local_rank,
            host=self._subject.start.environment.get(HOST_VARIABLE) or host_name(),
            devices=facts.device_names((self._device,)),
            device_uuids=facts.device_uuids((self._device,)),
            affinity=facts.affinity(),
            threads=torch.get_num_threads(),
            loader_workers=findings.loader_workers,
            epochs=epochs,
            parameters_hash=self._parameters_hash,
            communication=_communication(findings),
            cards=findings.cards,
            node=self._node,
        )

    def leave(self, findings: Findings) -> None:
        """End the process, if every process of the training comes here within `END_S`.

        Where one does not come, all go on with the script: its end shows why.
        """
        is_alone = self._world_size == 1
        if not is_alone and (self._world_size != world_size() or not self._all_come()):
            return
        _await_writers()
        self.write(findings, is_cut=True)
        if not is_alone:
            # rank 0 may have the store: it is the last to leave
            with suppress(dist.DistError):
                self._count_at("end/left", waits=self._rank == 0)
        leave(0)

    def _all_come(self) -> bool:
        """Return whether every process comes here; all of them return the same.

        They meet in the store of the process group: a collective may be one that the script's own
        do not expect. A process that waits no longer may be the first to answer.
        """
        try:
            answer = "all" if self._count_at("end/came", waits=True) else "not all"
            return bool(
                _get_default_store().compare_set("hpml_jobs/end", "", answer) == b"all"
            )
        except dist.DistError:
            return False

    def _count_at(self, place: str, *, waits: bool) -> bool:
        """Count this process at a place; return whether all are counted there, or soon."""
        store, key = _get_default_store(), f"hpml_jobs/{place}"
        deadline = time.monotonic() + END_S * waits
        store.add(key, 1)
        while store.add(key, 0) < self._world_size:
            if time.monotonic() >= deadline:
                return False
            # handlers of signals run meanwhile, as they would not in store.wait
            time.sleep(0.01)
        return True


def _communication(findings: Findings) -> Communication | None:
    """Return the communication of the instrumented window; None without messages."""
    windows = [result.phases for result in findings.results if result.phases]
    communication = windows[0].communication if windows else None
    has_messages = communication is not None and len(communication.messages) > 0
    return communication if has_messages else None


def _describe_model(model: WatchedModel) -> Model:
    module = model.inner
    trained = [p for p in model.parameters if p.requires_grad]
    sizes = _flat_sizes(model.module) or [
        (p.numel(), p.element_size()) for p in trained
    ]
    return Model(
        name=type(module).__name__ if module is not None else "",
        parameters=sum(elements for elements, _ in sizes),
        tensors=len(trained),
        gradient_bytes=sum(elements * size for elements, size in sizes),
        buffer_bytes=_buffer_bytes(module),
    )


def _buffer_bytes(model: nn.Module | None) -> int:
    buffers = model.buffers() if model is not None else ()
    return sum(buffer.numel() * buffer.element_size() for buffer in buffers)


def _read_facts(subject: Subject) -> Facts:
    """Return the facts of a run, with the files of the script's own code."""
    backend = dist.get_backend() if has_group() else None
    ways = (None, subject.file.import_root)
    imported, helpers = (
        without_files(imported_code((), below).files, subject.cell.workload.sources)
        for below in ways
    )
    return msgspec.structs.replace(
        facts.read_facts(subject.file, backend), imported=imported, helpers=helpers
    )


def _arrays(findings: Findings) -> Arrays:
    arrays: Arrays = {}
    for result in findings.results:
        if name := SAMPLES.get(result.epoch.role):
            arrays[name] = np.array(result.iterations.samples)
        if result.epoch.role is Role.TIMED:
            arrays |= timed_arrays(result.iterations.times)
        if result.phases and findings.ledger:
            arrays |= instrumented_arrays(result.phases, findings.ledger)
    return arrays


def _sizes_of_batches(findings: Findings) -> tuple[int, ...]:
    """Return the different samples of the batches of the timed window, without a pass's last."""
    sizes: set[int] = set()
    for result in findings.results:
        if result.epoch.role is not Role.TIMED:
            continue
        events = [event for group in result.iterations.batches for event in group]
        for event, following in pairwise(events):
            if event.kind is following.kind is Kind.BATCH:
                sizes.add(event.samples)
    return tuple(sorted(sizes))


def _await_writers() -> None:
    """Wait for the threads and processes that Python would wait for: they may write a checkpoint.

    One that waits for the end of the script ends with this process after `END_S`.
    """
    deadline = time.monotonic() + END_S
    pools = sys.modules.get("concurrent.futures.thread")
    # what Python does at its end: their threads end when they have done their work
    if pools:
        threading.Thread(target=pools._python_exit, daemon=True).start()
    for process in multiprocessing.active_children():
        if not process.daemon:
            process.join(max(0.0, deadline - time.monotonic()))
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread():
            thread.join(max(0.0, deadline - time.monotonic()))


def _flat_sizes(model: nn.Module | None) -> list[tuple[int, int]]:
    """Return elements, and bytes of each, of FSDP1's shards: its parameters are a rank's part."""
    if model is None:
        return []
    sizes = []
    for module in model.modules():
        handle = getattr(module, "_handle", None)
        if handle is None or not handle.flat_param.requires_grad:
            continue
        elements = handle.flat_param._unpadded_unsharded_size.numel()
        sizes.append((elements, handle.flat_param.element_size()))
    return sizes


_WORKER_ENDED = "exited unexpectedly"
"""torch's message on a loader whose worker has ended."""


def report_error(error: BaseException, start: Start) -> None:
    """Write the report of the exception that ends this process, as the worker does.

    A loader's worker that failed has written its own.
    """
    report, folder = (
        _describe(error, global_rank(start)),
        AttemptFolder(Path(start.folder)),
    )
    of_worker = _WORKER_ENDED in report.reason and any(folder.errors.glob("rank*.json"))
    if not of_worker:
        write_report(report, folder)


def _describe(error: BaseException, rank: int) -> RankError:
    """Return the report of an exception; one that mp.spawn raised anew is a child's."""
    report = describe(error, rank)
    if type(error).__name__ != "ProcessRaisedException":
        return report
    rank = getattr(error, "error_index", 0)
    last = raised(str(error)) or report.reason
    return msgspec.structs.replace(
        report, rank=rank, reason=last, oom="OutOfMemoryError" in last
    )
