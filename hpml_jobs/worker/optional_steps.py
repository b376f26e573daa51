"""The steps after training on which a trained cell does not depend: a failure leaves the record."""

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

from hpml_jobs.worker.process_group import ParallelStrategy

Result = TypeVar("Result")


class OptionalSteps:
    """Runs steps that may fail, on all ranks; `missing` has the reason of each that did."""

    def __init__(self, strategy: ParallelStrategy) -> None:
        self._strategy = strategy
        self.missing: list[str] = []

    def attempt(self, what: str, step: Callable[[], Result]) -> Result | None:
        """Return the step's result; None on all ranks if it failed on one of them.

        Memory that torch keeps for later is given back first: at the largest batch it is all of the
        GPU, and NCCL and a second replica need some. After a failure the ranks meet again, so a
        step must raise before its first collective, or on every rank, or come to every barrier.
        """
        release_memory()
        result, reason = None, ""
        try:
            result = step()
        except Exception as error:  # whatever it is: the epochs have been measured
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        if self._strategy.all_agree(not reason):
            return result
        self.missing.append(f"{what}: {reason or 'failed on another rank'}")
        return None


def release_memory() -> None:
    """Return the memory that torch's allocator caches to the driver; nothing on the CPU."""
    gc.collect()  # an exception's frames may have held tensors
    torch.cuda.empty_cache()
