"""What goes over the wire: every collective counted at its call, with its own start and end."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from hpml_jobs.core.measurements import CollectiveKind, Message, Purpose
from hpml_jobs.worker.instruments.timing import Clock, Stamp


@dataclass(slots=True)
class Collective:
    """One collective on one rank; `end` is set when it is complete."""

    iteration: int
    kind: CollectiveKind
    purpose: Purpose
    dtype: str
    elements: int
    bytes: int
    start: Stamp
    end: Stamp = None


class Ledger:
    """The collectives of an epoch, in the order of their calls."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.iteration = 0
        self.collectives: list[Collective] = []

    def begin(self, kind: CollectiveKind, purpose: Purpose, *tensors: Tensor) -> Collective:
        """Count a message of these tensors right before its call.

        Its bytes are elements x the size of an element, never elements alone.
        """
        elements = sum(tensor.numel() for tensor in tensors)
        entry = Collective(
            iteration=self.iteration,
            kind=kind,
            purpose=purpose,
            dtype=str(tensors[0].dtype).removeprefix("torch."),
            elements=elements,
            bytes=elements * tensors[0].element_size(),
            start=self.clock.stamp(),
        )
        self.collectives.append(entry)
        return entry

    def end(self, entry: Collective) -> None:
        """The collective is complete."""
        entry.end = self.clock.stamp()

    def durations_s(self) -> list[float]:
        """Seconds of each collective, from its call until it was complete."""
        return [self.clock.seconds(entry.start, entry.end) for entry in self.collectives]


@contextmanager
def noted(
    ledger: Ledger | None, kind: CollectiveKind, purpose: Purpose, *tensors: Tensor
) -> Iterator[None]:
    """A collective that is complete when the call returns; without a ledger nothing is noted."""
    entry = ledger.begin(kind, purpose, *tensors) if ledger else None
    yield
    if ledger and entry:
        ledger.end(entry)


def by_dtype(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Tensors in groups of one dtype each: only those can share a message."""
    groups: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return list(groups.values())


def by_kind(collectives: Sequence[Collective], durations_s: Sequence[float]) -> tuple[Message, ...]:
    """The messages of an epoch: a line per kind, purpose and size, in order of first calls."""
    found: dict[tuple[CollectiveKind, Purpose, str, int, int], list[float]] = {}
    for entry, seconds in zip(collectives, durations_s, strict=True):
        key = (entry.kind, entry.purpose, entry.dtype, entry.elements, entry.bytes)
        found.setdefault(key, []).append(seconds)
    return tuple(
        Message(
            kind=kind,
            purpose=purpose,
            dtype=dtype,
            elements=elements,
            bytes=size,
            count=len(seconds),
            busy_s=sum(seconds),
        )
        for (kind, purpose, dtype, elements, size), seconds in found.items()
    )


def fingerprint(tensors: Iterable[Tensor]) -> str:
    """sha256 of the tensors' bytes: two replicas are equal exactly when theirs are."""
    digest = hashlib.sha256()
    for tensor in tensors:
        content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(content.numpy().data)
    return digest.hexdigest()
