"""torch, patched so that loaders, optimizer steps and DDP wrappers of a script are reported.

Nothing else is imported until a loader begins or an optimizer steps, which the processes of
launchers and the workers of loaders never do.
"""

import os
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Sized
from contextlib import suppress
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
import torch.optim.optimizer as optimizers
from torch._compile import _disable_dynamo
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader, get_worker_info
from torch.utils.data.dataloader import _BaseDataLoaderIter

from hpml_jobs.worker.observer.process import (
    KEY,
    WRAPPERS,
    Start,
    T,
    call_on_fault,
    guarded,
)

if TYPE_CHECKING:
    from hpml_jobs.worker.observer.passes import Pass
    from hpml_jobs.worker.observer.session import Session

OLDEST = (2, 7)
"""The first version of torch that scripts may have."""

PASS = "_hpml_jobs_pass"  # noqa: S105  (no password)
"""The attribute of a loader's iterator with its `passes.Pass`."""

DRAWN = "_hpml_jobs_drawn"
"""That with its sampler's iterator, and the samples of each batch that this has drawn."""

_SECONDARY = (
    "ChildFailedError",
    "ProcessExitedException",
    "CalledProcessError",
    "SignalException",
)
"""What launchers raise because a process of theirs failed, which reports it, or on SIGTERM."""


start: Start
"""That of this process; `install` sets it."""

_sessions: dict[int, "Session"] = {}
"""The session by process: a fork has none at first."""


def session() -> "Session":
    """Return the session of this process; the first call begins it."""
    if os.getpid() not in _sessions:
        with start.apart():
            from hpml_jobs.worker.observer.session import Session  # noqa: PLC0415

            _sessions.clear()
            _sessions[os.getpid()] = Session(start)
    return _sessions[os.getpid()]


@guarded
def _see(event: Callable[["Session"], T]) -> T | None:
    """Let the session see an event, unless it is over or inside of a CUDA graph."""
    observer = session()
    return event(observer) if observer.is_watching else None


def _end_by(fault: Exception) -> None:
    """End the measurement of this process, and undo what it has changed in the script."""
    observer = _sessions.get(os.getpid())
    with suppress(Exception):
        if observer:
            observer.release()
    with suppress(Exception):
        lines = "".join(traceback.format_exception(fault))
        reason = f"{type(fault).__name__}: {fault}".splitlines()[0]
        start.note(f"the measurement of a script failed: {reason}\n{lines}")


def install(beginning: Start) -> None:
    """Patch torch in this process, and report an exception that ends it.

    Raises:
        RuntimeError: torch is too old for that.
    """
    global start  # noqa: PLW0603  (one per process)
    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST:
        raise RuntimeError(
            f"torch {torch.__version__} is older than 2.7; use a newer one"
        )
    start = beginning
    call_on_fault(_end_by)
    _watch_loaders()
    optimizers._global_optimizer_pre_hooks[KEY] = _before_step  # type: ignore[index]
    optimizers._global_optimizer_post_hooks[KEY] = _after_step  # type: ignore[index]
    _watch_wrappers()
    _report_exceptions()


def _watch_wrappers() -> None:
    """Keep every DDP wrapper that the script makes in `WRAPPERS`."""
    make, keep = DistributedDataParallel.__init__, guarded(WRAPPERS.add)

    @wraps(make)
    def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807
        make(self, *args, **options)
        keep(self)

    DistributedDataParallel.__init__ = __init__  # type: ignore[method-assign]


@_disable_dynamo
def _before_step(optimizer: Optimizer, _args: Any, _options: Any) -> None:
    if os.getpid() in _sessions:
        _see(lambda observer: observer.begin_step(optimizer))


@_disable_dynamo
def _after_step(optimizer: Optimizer, _args: Any, _options: Any) -> None:
    _see(lambda observer: observer.step(optimizer))


def _watch_loaders() -> None:
    make, load = DataLoader.__iter__, _BaseDataLoaderIter.__next__
    draw: Callable[[Any], Any] = _BaseDataLoaderIter._next_index

    @wraps(make)
    def __iter__(loader: DataLoader[Any]) -> _BaseDataLoaderIter:  # noqa: N807
        is_main = threading.current_thread() is threading.main_thread()
        # a thread fetches ahead of training
        if get_worker_info() is not None or not is_main:
            return make(loader)
        one_pass = _see(lambda observer: observer.begin_pass(loader))
        iterator = make(loader)
        _begin_reading(iterator, one_pass)
        return iterator

    @wraps(load)
    def __next__(iterator: _BaseDataLoaderIter) -> Any:  # noqa: N807
        one_pass = getattr(iterator, PASS, None)
        if one_pass is None:
            return load(iterator)
        if threading.current_thread() is not threading.main_thread():
            one_pass.in_thread = True
            return load(iterator)
        _see(lambda observer: observer.request(one_pass))
        try:
            batch = load(iterator)
        except StopIteration:
            _see(lambda observer: observer.end_pass(one_pass))
            raise
        except BaseException:  # the script may ask again
            _see(lambda observer: observer.make(one_pass))
            raise
        _receive(iterator, one_pass, batch)
        return batch

    @wraps(draw)
    def _next_index(iterator: _BaseDataLoaderIter) -> Any:
        indices = draw(iterator)
        _note_drawn(iterator, indices)
        return indices

    _BaseDataLoaderIter._next_index = _next_index  # type: ignore[method-assign]
    DataLoader.__iter__ = __iter__  # type: ignore[method-assign]
    _BaseDataLoaderIter.__next__ = __next__  # type: ignore[method-assign, assignment]


@guarded
def _begin_reading(iterator: _BaseDataLoaderIter, one_pass: "Pass | None") -> None:
    setattr(iterator, PASS, one_pass)
    if one_pass is not None:
        _see(lambda observer: observer.make(one_pass))
        one_pass.dropped = weakref.ref(iterator, lambda _: _drop(one_pass))


@guarded
def _note_drawn(iterator: Any, indices: Sized) -> None:
    """Note the samples of a batch that a worker may load later; a persistent one begins anew."""
    sampler = iterator._sampler_iter
    if getattr(iterator, DRAWN, (None,))[0] is not sampler:
        setattr(iterator, DRAWN, (sampler, deque()))
    sizes = getattr(iterator, DRAWN)[1]
    sizes.append(len(indices) if iterator._auto_collation else 0)


@guarded
def _receive(iterator: _BaseDataLoaderIter, one_pass: "Pass", batch: object) -> None:
    sizes = getattr(iterator, DRAWN, ((), ()))[1]
    one_pass.drawn = sizes.popleft() if sizes else 0
    _see(lambda observer: observer.receive(one_pass, batch))


def _drop(one_pass: "Pass") -> None:
    # A fork also drops what it has inherited, and a thread of autograd may collect garbage.
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and os.getpid() in _sessions:
        _see(lambda observer: observer.drop(one_pass))


def _report_exceptions() -> None:
    """Write the report of an exception that ends this process, unless it is a launcher's."""
    earlier: Callable[..., Any] = sys.excepthook

    @wraps(earlier)
    def report(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        with suppress(Exception):  # also after a fault of the measurement
            _report(kind, error)
        earlier(kind, error, trace)

    sys.excepthook = report


def _report(kind: type[BaseException], error: BaseException) -> None:
    if not issubclass(kind, Exception) or kind.__name__ in _SECONDARY:
        return
    with start.apart():
        from hpml_jobs.worker.observer.result import report_error  # noqa: PLC0415

        report_error(error, start)
    for observer in _sessions.values():
        observer.fail()
