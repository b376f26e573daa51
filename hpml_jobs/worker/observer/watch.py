"""torch, patched so that loaders, optimizer steps and DDP wrappers of a script are reported.

Nothing else is imported until a loader begins or an optimizer steps, which the processes of
launchers and the workers of loaders never do.
"""

import os
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial, wraps
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

import torch
import torch.distributed as dist
import torch.optim.optimizer as optimizers
from torch._compile import _disable_dynamo
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader, get_worker_info
from torch.utils.data.dataloader import _BaseDataLoaderIter

if TYPE_CHECKING:
    from hpml_jobs.worker.observer.session import Session
    from hpml_jobs.worker.observer.windows import Pass

KEY = "hpml_jobs"
"""The key of our hooks in torch's tables: by a number of torch's those of the script would have
other numbers, and a model that is saved with its hooks another content.
"""

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


class Start(Protocol):
    """What is held of the process since before the script began: `site/sitecustomize.py`."""

    folder: str
    environment: dict[str, str]

    def apart(self) -> AbstractContextManager[None]:
        """Import what the block imports as if the script were not there."""

    def note(self, text: str) -> None:
        """Write why this process cannot be measured."""


def given_rank(beginning: Start) -> str | None:
    """Return the number that torchrun or srun has given a process; None without one."""
    return beginning.environment.get("RANK") or beginning.environment.get("SLURM_PROCID")


start: Start
"""That of this process; `install` sets it."""

_sessions: dict[int, "Session"] = {}
"""The session by process: a fork has none at first."""

_failed: set[int] = set()
"""The processes whose measurement has ended by a fault."""


def session() -> "Session":
    """Return the session of this process; the first call begins it."""
    if os.getpid() not in _sessions:
        with start.apart():
            from hpml_jobs.worker.observer.session import Session  # noqa: PLC0415

            _sessions.clear()
            _sessions[os.getpid()] = Session(start)
    return _sessions[os.getpid()]


P = ParamSpec("P")
T = TypeVar("T")


def guarded(hook: Callable[P, T]) -> Callable[P, T | None]:
    """Keep every fault of a hook from the script: it is noted, and the measurement ends."""

    @wraps(hook)
    def call(*args: P.args, **options: P.kwargs) -> T | None:
        if _failed and os.getpid() in _failed:
            return None
        try:
            return hook(*args, **options)
        except Exception as fault:
            _end_by(fault)
            if _is_of_signal(fault):  # the script's handler raised it while a hook ran
                raise
            return None

    return call


def _end_by(fault: Exception) -> None:
    """End the measurement of this process, and undo what it has changed in the script."""
    _failed.add(os.getpid())
    observer = _sessions.get(os.getpid())
    with suppress(Exception):
        if observer:
            observer.release()
    with suppress(Exception):
        lines = "".join(traceback.format_exception(fault))
        reason = f"{type(fault).__name__}: {fault}".splitlines()[0]
        start.note(f"the measurement of a script failed: {reason}\n{lines}")


def _is_of_signal(fault: Exception) -> bool:
    """Return whether an exception comes from a function that handles a signal."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {*map(_code_of, handlers)} - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(fault.__traceback__))


def _code_of(handler: Any) -> CodeType | None:
    """Return the code that a handler runs: of a function, a method, a partial or an object."""
    while isinstance(handler, partial):
        handler = handler.func
    is_function = hasattr(handler, "__code__") or not callable(handler)
    code = getattr(handler if is_function else handler.__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


_profilers: list[object] = []
"""What the script has of torch's profiler: another one beside it would cancel it."""


def script_has_profiler() -> bool:
    """Return whether the script has made a profiler of torch in this process."""
    return len(_profilers) > 0


def install(beginning: Start) -> None:
    """Patch torch in this process, and report an exception that ends it.

    Raises:
        RuntimeError: torch is too old for that.
    """
    global start  # noqa: PLW0603  (one per process)
    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST:
        raise RuntimeError(f"torch {torch.__version__} is older than 2.7; use a newer one")
    start = beginning
    _watch_loaders()
    optimizers._global_optimizer_pre_hooks[KEY] = _before_step  # type: ignore[index]
    optimizers._global_optimizer_post_hooks[KEY] = _after_step  # type: ignore[index]
    _watch_made(DistributedDataParallel, WRAPPERS.add, is_after=True)
    _watch_made(torch.autograd.profiler.profile, _note_profiler)
    _report_exceptions()


def _watch_made(kind: Any, see: Callable[[Any], None], *, is_after: bool = False) -> None:
    """Let a function see each object of a class, before or after it is made."""
    make, see = kind.__init__, guarded(see)

    @wraps(make)
    def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807
        if not is_after:
            see(self)
        make(self, *args, **options)
        if is_after:
            see(self)

    kind.__init__ = __init__


def _note_profiler(_profiler: object) -> None:
    observer = _sessions.get(os.getpid())
    if observer is None or not observer.starts_profiler:
        _profilers.append(True)
    if observer:
        observer.leave_profiler()


@_disable_dynamo
@guarded
def _before_step(_optimizer: Optimizer, args: Any, options: Any) -> Any:
    observer = _sessions.get(os.getpid())
    return observer.begin_step(args, options) if observer else None


@_disable_dynamo
@guarded
def _after_step(optimizer: Optimizer, _args: Any, _options: Any) -> None:
    session().stepped(optimizer)


def _watch_loaders() -> None:
    make, load = DataLoader.__iter__, _BaseDataLoaderIter.__next__

    @wraps(make)
    def __iter__(loader: DataLoader[Any]) -> _BaseDataLoaderIter:  # noqa: N807
        is_main = threading.current_thread() is threading.main_thread()
        if get_worker_info() is not None or not is_main:  # a thread fetches ahead of training
            return make(loader)
        one_pass = _begin_pass(loader)
        iterator = make(loader)
        _begin_reading(iterator, one_pass)
        return iterator

    @wraps(load)
    def __next__(iterator: _BaseDataLoaderIter) -> Any:  # noqa: N807
        one_pass = getattr(iterator, PASS, None)
        if one_pass is None or one_pass.in_thread:
            return load(iterator)
        if threading.current_thread() is not threading.main_thread():
            one_pass.in_thread = one_pass.is_over = True
            return load(iterator)
        _request(one_pass)
        try:
            batch = load(iterator)
        except StopIteration:
            _end_pass(one_pass)
            raise
        except BaseException:  # the script may ask again
            _make(one_pass)
            raise
        _receive(one_pass, batch)
        return batch

    DataLoader.__iter__ = __iter__  # type: ignore[method-assign]
    _BaseDataLoaderIter.__next__ = __next__  # type: ignore[method-assign, assignment]


@guarded
def _begin_pass(loader: DataLoader[Any]) -> "Pass | None":
    return session().begin_pass(loader)


@guarded
def _begin_reading(iterator: _BaseDataLoaderIter, one_pass: "Pass | None") -> None:
    setattr(iterator, PASS, one_pass)
    if one_pass is not None:
        session().make(one_pass)
        one_pass.dropped = weakref.ref(iterator, lambda _: _drop(one_pass))


@guarded
def _request(one_pass: "Pass") -> None:
    session().request(one_pass)


@guarded
def _make(one_pass: "Pass") -> None:
    session().make(one_pass)


@guarded
def _receive(one_pass: "Pass", batch: object) -> None:
    session().receive(one_pass, batch)


@guarded
def _end_pass(one_pass: "Pass") -> None:
    session().end_pass(one_pass)


@guarded
def _drop(one_pass: "Pass") -> None:
    # A fork also drops what it has inherited, and a thread of autograd may collect garbage.
    if os.getpid() in _sessions and threading.current_thread() is threading.main_thread():
        session().drop(one_pass)


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
        observer.has_failed = True
