"""Python stacks of ranks: read faulthandler's text, and say where each rank was.

A rank that does not reach a collective makes all others wait in it. What a rank was doing is
decided by its innermost frames: user code, data loading, backward, or a collective.
"""

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from hpml_jobs.core.text import ranges_text

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_FRAME = re.compile(r'^ *File "([^"]+)", line (\d+),? in (\S+)', re.MULTILINE)
"""A frame, as faulthandler and as tracebacks print it."""

_LAST_TRACEBACK = "Traceback (most recent call last):"

_THREAD_ENTRY = "_bootstrap"
"""The outermost function of every thread but the main one."""

_REPORTING = "_report"
"""The function in which a rank writes its own error, which says more than its stack."""

_LOADER_ENTRY = "_worker_loop"
_LOADER = "/torch/utils/data/"
_DDP = "/torch/nn/parallel/distributed.py"
_COLLECTIVES = ("/torch/distributed/", _DDP)
_WRAPPER = "wrapper"  # torch's decorator of collectives
_EXCHANGE = (
    "/hpml_jobs/worker/strategies.py",
    "/hpml_jobs/worker/instruments/wrappers.py",
)
_BACKWARD = "_engine_run_backward"
_RENDEZVOUS = "next_rendezvous"  # of torchrun, before it starts a rank
_LIBRARIES = re.compile(r"/(site|dist)-packages/|/lib/python\d|^<")
_PROGRAM = re.compile(r"/hpml_jobs/(core|study|worker)/")


class Frame(NamedTuple):
    """One function call in a stack."""

    file: str
    line: int
    function: str

    @property
    def is_collective(self) -> bool:
        """Whether it is in code of torch that communicates."""
        return any(part in self.file for part in _COLLECTIVES)

    @property
    def is_user_code(self) -> bool:
        """Whether the file belongs neither to Python, nor to a package, nor to this program."""
        return not self.is_library and not _PROGRAM.search(self.file)

    @property
    def is_library(self) -> bool:
        """Whether the file belongs to Python or to an installed package."""
        return bool(_LIBRARIES.search(self.file))

    @property
    def place(self) -> str:
        """Return the place in words."""
        return f"{self.file}, line {self.line}, in {self.function}"


class Activity(IntEnum):
    """What a rank was doing, most suspicious first."""

    CODE = 0  # in a function that is not a collective: it keeps the others waiting
    DATA = 1  # loads data, or waits for a loader worker
    BACKWARD = 2  # computes gradients, or waits in the collectives of backward
    COLLECTIVE = 3  # waits for the other ranks


class Position(NamedTuple):
    """Where a rank was, in words; equal for ranks that wait for the same thing."""

    activity: Activity
    text: str


def rank_position(text: str) -> Position | None:
    """Return where a rank was by its stacks file; None without a stack of its main thread.

    A file may hold several dumps, and those of its DataLoader workers: the last one counts.

    >>> text = '''Current thread 0x1 (most recent call first):
    ...   File "/home/me/net.py", line 7 in forward
    ...   File "/venv/hpml_jobs/worker/epochs.py", line 140 in _run
    ...   File "/venv/hpml_jobs/worker/__main__.py", line 20 in main'''
    >>> rank_position(text)
    Position(activity=<Activity.CODE: 0>, text='in /home/me/net.py, line 7, in forward')
    """
    stacks = [*map(_frames, _THREAD.split(text))]
    loaders = [stack for stack in stacks if _innermost_of(stack, _LOADER_ENTRY)]
    ranks = [
        stack
        for stack in stacks
        if stack
        and stack not in loaders
        and stack[-1].function != _THREAD_ENTRY
        and not _innermost_of(stack, _REPORTING)
    ]
    if not ranks:
        return None
    return _position(ranks[-1], loaders[-1] if loaders else ())


def traceback_position(text: str) -> Position | None:
    """Return where a rank was when it raised, by its traceback; None without a frame."""
    frames = _frames(text.rpartition(_LAST_TRACEBACK)[2])[::-1]
    return _position(frames, ()) if frames else None


def positions_text(positions: Mapping[int, Position]) -> str:
    """Return where all ranks were in one line, those that keep the others waiting first.

    >>> waits = Position(Activity.COLLECTIVE, "waiting in all_reduce")
    >>> positions_text({0: waits, 1: Position(Activity.CODE, "in net.py, line 7, in f"), 2: waits})
    'rank 1 was in net.py, line 7, in f; ranks 0, 2 were waiting in all_reduce'
    """
    ranks: dict[Position, list[int]] = {}
    for rank, position in sorted(positions.items()):
        ranks.setdefault(position, []).append(rank)
    texts = []
    for position, numbers in sorted(ranks.items()):
        noun, verb = ("rank", "was") if len(numbers) == 1 else ("ranks", "were")
        texts.append(f"{noun} {ranges_text(numbers)} {verb} {position.text}")
    return "; ".join(texts)


def _frames(text: str) -> tuple[Frame, ...]:
    return tuple(
        Frame(file, int(line), name) for file, line, name in _FRAME.findall(text)
    )


def _innermost_of(stack: Iterable[Frame], function: str) -> Frame | None:
    return next((frame for frame in stack if frame.function == function), None)


def _position(stack: tuple[Frame, ...], loader: tuple[Frame, ...]) -> Position:
    """Return the position of a rank; stacks are innermost first."""
    if _innermost_of(stack, _RENDEZVOUS):
        return Position(Activity.COLLECTIVE, "waiting for the other nodes")
    for frame in stack:
        if _LOADER in frame.file:
            words = f"waiting for its data loader{_loader_text(loader)}"
            return Position(Activity.DATA, words)
        if frame.is_collective:
            return Position(Activity.COLLECTIVE, f"waiting in {_collective(stack)}")
        if frame.file.endswith(_EXCHANGE):
            return Position(Activity.COLLECTIVE, "waiting in the exchange of gradients")
        if frame.function == _BACKWARD:
            words = "in backward() or waiting in its collectives"
            return Position(Activity.BACKWARD, words)
        if frame.is_user_code:
            return _in_user_code(frame, stack)
    return Position(Activity.CODE, f"in {stack[0].place}")


def _in_user_code(frame: Frame, stack: Iterable[Frame]) -> Position:
    if any(_LOADER in outer.file for outer in stack):
        return Position(Activity.DATA, f"loading data in {frame.place}")
    return Position(Activity.CODE, f"in {frame.place}")


def _loader_text(loader: tuple[Frame, ...]) -> str:
    """Return where the loader's worker was, if it was in user code."""
    frame = next((frame for frame in loader if frame.is_user_code), None)
    return f", whose worker was in {frame.place}" if frame else ""


def _collective(stack: tuple[Frame, ...]) -> str:
    """Return the name of the collective, and the user's line that called it."""
    caller = next((frame for frame in stack if not frame.is_library), None)
    end = stack.index(caller) if caller else len(stack)
    inside = [frame for frame in stack[:end] if frame.is_collective]
    names = [frame.function for frame in inside if frame.function != _WRAPPER]
    name = names[-1] if names else "a collective"
    if any(_DDP in frame.file for frame in inside):
        name = "the collectives of ddp"
    return f"{name} ({caller.place})" if caller and caller.is_user_code else name
