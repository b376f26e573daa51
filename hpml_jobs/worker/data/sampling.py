"""The order in which a rank draws its images, recorded and hashed."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import Sampler


class RecordedSampler(Sampler[int]):
    """Passes on another sampler's indices and remembers those of the last pass."""

    def __init__(self, sampler: Sampler[Any]) -> None:
        self._sampler = sampler
        self._indices: list[int] = []

    def __iter__(self) -> Iterator[int]:
        self._indices = list(self._sampler)
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type]  # all samplers used here have a length

    def digest(self) -> str:
        """Return a hash (16 hex digits) of the indices of the last pass, in their order."""
        return hashlib.sha256(np.array(self._indices, dtype=np.int64).tobytes()).hexdigest()[:16]
