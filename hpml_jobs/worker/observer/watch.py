"""torch, patched so that loaders, optimizer steps and DDP wrappers of a script are reported.

Nothing else is imported until a loader begins or an optimizer steps, which the processes of
launchers and the workers of loaders never do.
"""

import os
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._compile import _disable_dynamo
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader, get_worker_info
from torch.utils.data.dataloader import _BaseDataLoaderIter

if TYPE_CHECKING:
    from hpml_jobs.worker.observer.session import Session
    from hpml_jobs.worker.observer.windows import Pass

WRAPPERS: "weakref.WeakSet[DistributedDataParallel]" = weakref.WeakSet()
"""The DDP wrappers of this process."""

OLDEST = (2, 7)
"""The first version of torch that scripts may have."""

PASS = "_hpml_jobs_pass"  # noqa: S105  (no password)
"""The attribute of a loader's iterator with its `windows.Pass`."""

_SECONDARY = (
    "ChildFailedError",
    "ProcessExitedException",
    "CalledProcessError",
    "SignalException",
)
"""What launchers raise because a process of theirs failed, which reports it, or on SIGTERM."""


def has_group() -> bool:
    """Return whether this process is in a process group now."""
    return dist.is_available() and dist.is_initialized()


def world_size() -> int:
    """Return the processes of the group; 1 without one."""
    return dist.get_world_size() if has_group() else 1


def is_capturing() -> bool:
    """Return whether what the script calls now goes into a CUDA graph instead of to the GPU."""
    is_initialized: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return is_initialized and torch.cuda.is_current_stream_capturing()


_sessions: dict[int, "Session"] = {}
"""The session by process: a fork has none at first."""


def session() -> "Session":
    """Return the session of this process; the first call begins it."""
    if os.getpid() not in _sessions:
        from hpml_jobs.study.attempt import OBSERVE_VARIABLE, AttemptFolder  # noqa: PLC0415
        from hpml_jobs.worker.observer.session import Session  # noqa: PLC0415

        _sessions.clear()
        _sessions[os.getpid()] = Session(AttemptFolder(Path(os.environ[OBSERVE_VARIABLE])))
    return _sessions[os.getpid()]


_profilers: list[object] = []
"""What the script has of torch's profiler: another one beside it would cancel it."""


def script_has_profiler() -> bool:
    """Return whether the script has made a profiler of torch in this process."""
    return len(_profilers) > 0


def install() -> None:
    """Patch torch in this process, and report an exception that ends it.

    Raises:
        RuntimeError: torch is too old for that.
    """
    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST:
        raise RuntimeError(f"torch {torch.__version__} is older than 2.7; use a newer one")
    _watch_loaders()
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)
    make = DistributedDataParallel.__init__

    def __init__(self: DistributedDataParallel, *args: Any, **options: Any) -> None:  # noqa: N807
        make(self, *args, **options)
        WRAPPERS.add(self)

    DistributedDataParallel.__init__ = __init__  # type: ignore[method-assign]
    _watch_profilers()
    _report_exceptions()


def _watch_profilers() -> None:
    make = torch.autograd.profiler.profile.__init__

    def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807
        observer = _sessions.get(os.getpid())
        if observer is None or not observer.starts_profiler:
            _profilers.append(True)
        if observer:
            observer.leave_profiler()
        make(self, *args, **options)

    torch.autograd.profiler.profile.__init__ = __init__  # type: ignore[method-assign]


@_disable_dynamo
def _before_step(_optimizer: Optimizer, args: Any, options: Any) -> Any:
    observer = _sessions.get(os.getpid())
    return observer.begin_step(args, options) if observer else None


@_disable_dynamo
def _after_step(optimizer: Optimizer, _args: Any, _options: Any) -> None:
    session().stepped(optimizer)


def _watch_loaders() -> None:
    make, load = DataLoader.__iter__, _BaseDataLoaderIter.__next__

    def __iter__(loader: DataLoader[Any]) -> _BaseDataLoaderIter:  # noqa: N807
        is_main = threading.current_thread() is threading.main_thread()
        if get_worker_info() is not None or not is_main:  # a thread fetches ahead of training
            return make(loader)
        one_pass = session().begin_pass(loader)
        iterator = make(loader)
        setattr(iterator, PASS, one_pass)
        if one_pass is not None:
            session().make(one_pass)
            one_pass.dropped = weakref.ref(iterator, lambda _: _drop(one_pass))
        return iterator

    def __next__(iterator: _BaseDataLoaderIter) -> Any:  # noqa: N807
        one_pass = getattr(iterator, PASS, None)
        if one_pass is None or one_pass.in_thread:
            return load(iterator)
        if threading.current_thread() is not threading.main_thread():
            one_pass.in_thread = one_pass.is_over = True
            return load(iterator)
        observer = session()
        observer.request(one_pass)
        try:
            batch = load(iterator)
        except StopIteration:
            observer.end_pass(one_pass)
            raise
        except BaseException:  # the script may ask again
            observer.make(one_pass)
            raise
        observer.receive(one_pass, batch)
        return batch

    DataLoader.__iter__ = __iter__  # type: ignore[method-assign]
    _BaseDataLoaderIter.__next__ = __next__  # type: ignore[method-assign, assignment]


def _drop(one_pass: "Pass") -> None:
    # A fork also drops what it has inherited, and a thread of autograd may collect garbage.
    if os.getpid() in _sessions and threading.current_thread() is threading.main_thread():
        session().drop(one_pass)


def _report_exceptions() -> None:
    """Write the report of an exception that ends this process, unless it is a launcher's."""
    earlier: Callable[..., Any] = sys.excepthook

    def report(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if issubclass(kind, Exception) and kind.__name__ not in _SECONDARY:
            from hpml_jobs.worker.observer.result import report_error  # noqa: PLC0415

            report_error(error)
            for observer in _sessions.values():
                observer.has_failed = True
        earlier(kind, error, trace)

    sys.excepthook = report
