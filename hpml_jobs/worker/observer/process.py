"""What the observer knows of a process without a session: start, group, wrappers, captures, faults.

Nothing but torch is imported here: launchers and the workers of loaders need no more.
"""

import os
import signal
import traceback
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

KEY = "hpml_jobs"
"""The key of our hooks in torch's tables: by a number of torch's those of the script would have
other numbers, and a model that is saved with its hooks another content.
"""

WRAPPERS: "weakref.WeakSet[DistributedDataParallel]" = weakref.WeakSet()
"""The DDP wrappers of this process."""


class Start(Protocol):
    """What is held of the process since before the script began: `site/sitecustomize.py`."""

    folder: str
    environment: dict[str, str]

    def apart(self) -> AbstractContextManager[None]:
        """Import what the block imports as if the script were not there."""

    def note(self, text: str) -> None:
        """Write why this process cannot be measured."""


def has_group() -> bool:
    """Return whether this process is in a process group now."""
    return dist.is_available() and dist.is_initialized()


def world_size() -> int:
    """Return the processes of the group; 1 without one."""
    return dist.get_world_size() if has_group() else 1


def global_rank(start: Start) -> int:
    """Return the number of this process by its process group, else by its environment."""
    return dist.get_rank() if has_group() else int(given_rank(start) or 0)


def given_rank(start: Start) -> str | None:
    """Return the number that torchrun or srun has given a process; None without one."""
    return start.environment.get("RANK") or start.environment.get("SLURM_PROCID")


def is_capturing() -> bool:
    """Return whether what the script calls now goes into a CUDA graph instead of to the GPU."""
    is_initialized: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return is_initialized and torch.cuda.is_current_stream_capturing()


# ---- faults of the observer: they end the measurement, and never reach the script ----

P = ParamSpec("P")
T = TypeVar("T")

_failed: set[int] = set()
"""The processes whose measurement has ended by a fault."""

_handlers: list[Callable[[Exception], None]] = []
"""What is called with a fault."""


def call_on_fault(handler: Callable[[Exception], None]) -> None:
    """Call a function with the fault that ends the measurement of a process."""
    _handlers.append(handler)


def guarded(hook: Callable[P, T]) -> Callable[P, T | None]:
    """Keep every fault of a hook from the script: it is noted, and the measurement ends."""

    @wraps(hook)
    def call(*args: P.args, **options: P.kwargs) -> T | None:
        if _failed and os.getpid() in _failed:
            return None
        try:
            return hook(*args, **options)
        except Exception as fault:
            _failed.add(os.getpid())
            for handler in _handlers:
                with suppress(Exception):
                    handler(fault)
            if _is_of_signal(fault):  # the script's handler raised it while a hook ran
                raise
            return None

    return call


def _is_of_signal(fault: Exception) -> bool:
    """Return whether an exception comes from a function or method that handles a signal."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(handler, "__code__", None) for handler in handlers}
    return any(
        frame.f_code in codes for frame, _ in traceback.walk_tb(fault.__traceback__)
    )
