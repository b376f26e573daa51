"""In which order a rank takes its images: noted as they are drawn, told as a hash."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import Sampler


class Noted(Sampler[int]):
    """Another sampler's indices, remembered until it is begun again."""

    def __init__(self, indices: Sampler[Any]) -> None:
        self._indices = indices
        self._drawn: list[int] = []

    def __iter__(self) -> Iterator[int]:
        self._drawn = list(self._indices)
        return iter(self._drawn)

    def __len__(self) -> int:
        return len(self._indices)  # type: ignore[arg-type]  # every sampler of ours has a length

    def digest(self) -> str:
        """Hash (16 hex digits) of the indices drawn last, in their order."""
        return hashlib.sha256(np.array(self._drawn, dtype=np.int64).tobytes()).hexdigest()[:16]
