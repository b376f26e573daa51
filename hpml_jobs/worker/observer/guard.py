"""Faults of the observer: they end the measurement, and never reach the script."""

import os
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from types import CodeType
from typing import Any, ParamSpec, TypeVar

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
    """Return whether an exception comes from a function that handles a signal."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {*map(_code_of, handlers)} - {None}
    return any(
        frame.f_code in codes for frame, _ in traceback.walk_tb(fault.__traceback__)
    )


def _code_of(handler: Any) -> CodeType | None:
    """Return the code that a handler runs: of a function, a method, a partial or an object."""
    while isinstance(handler, partial):
        handler = handler.func
    is_function = hasattr(handler, "__code__") or not callable(handler)
    code = getattr(handler if is_function else handler.__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None
