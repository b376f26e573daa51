"""The ledger of collectives: kind, bytes and duration of each, recorded where it is called."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from hpml_jobs.core.measurements import CollectiveKind, Message, Purpose
from hpml_jobs.worker.instruments.timing import Clock, Stamp


@dataclass(slots=True)
class Collective:
    """One collective on one rank. `end` is None until it is complete."""

    iteration: int
    kind: CollectiveKind
    purpose: Purpose
    dtype: str
    elements: int
    bytes: int
    start: Stamp
    end: Stamp = None


class Wait(NamedTuple):
    """Two stamps of the computing stream between which it may have waited.

    It waits for a collective, or under dp on the first device until the replicas have computed.
    """

    iteration: int
    start: Stamp
    end: Stamp


class Ledger:
    """The collectives of one epoch on one rank, in the order of their calls, and dp's waits.

    `waits` are kept where collectives run beside computation in forward as well (fsdp); elsewhere
    it is empty. `knows_waits`: they are all, and inside of messages.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.iteration = 0
        self.collectives: list[Collective] = []
        self.replica_waits: list[Wait] = []
        self.waits: list[Wait] = []
        self.knows_waits = False

    def begin(
        self, kind: CollectiveKind, purpose: Purpose, *tensors: Tensor
    ) -> Collective:
        """Record a message of these tensors, of one dtype, right before its call."""
        collective = self._message(kind, purpose, tensors, self.clock.stamp())
        self.collectives.append(collective)
        return collective

    def _message(
        self,
        kind: CollectiveKind,
        purpose: Purpose,
        tensors: Sequence[Tensor],
        start: Stamp,
        end: Stamp = None,
    ) -> Collective:
        """Return a message; its bytes are the number of elements times the size of an element."""
        elements = sum(tensor.numel() for tensor in tensors)
        return Collective(
            iteration=self.iteration,
            kind=kind,
            purpose=purpose,
            dtype=str(tensors[0].dtype).removeprefix("torch."),
            elements=elements,
            bytes=elements * tensors[0].element_size(),
            start=start,
            end=end,
        )

    def record_call(
        self,
        kind: CollectiveKind,
        purpose: Purpose,
        tensors: Iterable[Tensor],
        start: Stamp,
    ) -> None:
        """Record one call of torch that is complete: a message of each dtype, with its interval."""
        end = self.clock.stamp()
        for group in group_by_dtype(tensors):
            self.collectives.append(self._message(kind, purpose, group, start, end))

    def wait_for_replicas(self) -> Stamp:
        """Let the first device wait for the others; return the stamp of the end of the wait."""
        start = self.clock.stamp()
        self.clock.join_devices()
        end = self.clock.stamp()
        self.replica_waits.append(Wait(self.iteration, start, end))
        return end

    def end(self, collective: Collective) -> None:
        """Record that the collective is complete."""
        collective.end = self.clock.stamp()

    def wait(self, start: Stamp, end: Stamp) -> None:
        """Record that the computing stream may have waited between two stamps."""
        self.waits.append(Wait(self.iteration, start, end))

    def durations_s(self) -> list[float]:
        """Return the seconds of each collective, from its call until it was complete."""
        return [
            self.clock.seconds(entry.start, entry.end) for entry in self.collectives
        ]


@contextmanager
def recorded(
    ledger: Ledger | None, kind: CollectiveKind, purpose: Purpose, *tensors: Tensor
) -> Iterator[None]:
    """Record a collective that is complete when its call returns; without a ledger do nothing."""
    collective = ledger.begin(kind, purpose, *tensors) if ledger else None
    yield
    if ledger and collective:
        ledger.end(collective)


def group_by_dtype(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Group tensors by dtype, because only tensors of one dtype can share a message."""
    groups: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return list(groups.values())


def aggregate(
    collectives: Sequence[Collective], durations_s: Sequence[float]
) -> tuple[Message, ...]:
    """Return one message per kind, purpose, dtype and size, in order of the first calls."""
    durations: dict[tuple[CollectiveKind, Purpose, str, int, int], list[float]] = {}
    for entry, duration_s in zip(collectives, durations_s, strict=True):
        key = (entry.kind, entry.purpose, entry.dtype, entry.elements, entry.bytes)
        durations.setdefault(key, []).append(duration_s)
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
        for (kind, purpose, dtype, elements, size), seconds in durations.items()
    )


def fingerprint(tensors: Iterable[Tensor]) -> str:
    """Return the sha256 of the tensors' bytes; it is equal for bitwise equal replicas only."""
    digest = hashlib.sha256()
    for tensor in tensors:
        content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(content.numpy().data)
    return digest.hexdigest()
