"""progress.json: what a running cell is doing, written by rank 0 between epochs."""

import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from hpml_jobs.core.measurements import Stage
from hpml_jobs.study.attempt import AttemptFolder, Progress, utc_now
from hpml_jobs.study.files import encode, write_whole

Batch = TypeVar("Batch")

INTERVAL_S = 2.0
"""Seconds between two reports inside an epoch that is not measured."""


class ProgressWriter:
    """Writes the progress of a cell; on all ranks but 0 it writes nothing."""

    def __init__(self, folder: AttemptFolder, rank: int, epochs: int) -> None:
        self._file = folder.progress if rank == 0 else None
        self._progress = Progress(epoch=0, epochs=epochs)

    def begin(self, role: Stage, epoch: int | None = None, last_s: float | None = None) -> None:
        """Report that an epoch (from 1) begins, or without a number a step after training.

        `last_s` is the duration of the previous epoch in seconds; None leaves the last one known.
        """
        self._write(
            epoch=self._progress.epoch if epoch is None else epoch,
            role=role,
            since=utc_now(),
            last_s=self._progress.last_s if last_s is None else last_s,
            iteration=0,
            iterations=0,
        )

    def count_batches(self, batches: Iterable[Batch], iterations: int) -> Iterator[Batch]:
        """Yield the batches and report their number every `INTERVAL_S`; not for measured epochs."""
        written_s = time.monotonic()
        for number, batch in enumerate(batches):
            if time.monotonic() - written_s > INTERVAL_S:
                written_s = time.monotonic()
                self._write(iteration=number, iterations=iterations)
            yield batch

    def _write(self, **changes: Any) -> None:
        self._progress = msgspec.structs.replace(self._progress, **changes)
        if self._file is not None:
            write_whole(self._file, encode(self._progress), parents=False)
