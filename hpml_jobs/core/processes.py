"""Process lifetime: die with the parent, ask for stacks, exit without teardown."""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from hpml_jobs.core.stack_files import STACK_SIGNAL

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h

TERM_S, END_S = 2.0, 10.0
"""Time for processes that are ended by SIGTERM, and for all to be gone: one may wait for a disk."""

POLL_S = 0.01

STACK_PAUSE_S = 0.02
"""Time for one process to write its stacks before the next one writes to the same file."""

STACK_SETTLE_S = 0.5
"""Time for processes that have to wait for a CPU to write theirs."""


def die_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to end this process by a signal when its parent dies, however that dies.

    torchrun puts every worker into a session of its own, so a signal to its process group misses
    them. The request is not inherited: every DataLoader worker makes it again. Systems other than
    Linux have no such call.
    """
    if sys.platform != "linux":
        return
    parent = _parent()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, by, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel had the request
        os._exit(1)


def _parent() -> int:
    """Return the process that started this one, also if it has died since: a fork knows it."""
    started_by = multiprocessing.parent_process()
    if started_by is None or multiprocessing.get_start_method() != "fork":
        return os.getppid()
    return started_by.pid or 0


def ignore_submitit_signal() -> None:
    """Ignore SIGUSR2: submitit's handler would end a cell as FAILED, so it is never requeued.

    SLURM sends it before the time limit and at preemption; the default action ends the process.
    """
    signal.signal(STACK_SIGNAL, signal.SIG_IGN)


def request_stacks(root: int) -> int:
    """Ask all processes below `root` that can write their stacks to do so; return their number."""
    able = [pid for pid in descendants(root) if _catches(pid, STACK_SIGNAL)]
    for pid in able:
        try:
            os.kill(pid, STACK_SIGNAL)
        except ProcessLookupError:
            continue
        time.sleep(STACK_PAUSE_S)
    if able:
        time.sleep(STACK_SETTLE_S)
    return len(able)


def descendants(root: int) -> Iterator[int]:
    """Yield the processes below `root`, parents first; none where /proc does not have them."""
    for pid in children(root):
        yield pid
        yield from descendants(pid)


def children(parent: int) -> list[int]:
    """Return the children of a process; none where /proc does not have them."""
    pids: list[int] = []
    for of_thread in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            pids += map(int, of_thread.read_text().split())
    return pids


class Orphans:
    """The processes below this one whose parents end: they become its children, and end with it.

    `others` are the children that this process has before. Only children are ended, whose numbers
    no other process can get before they are reaped here.
    """

    def __init__(self) -> None:
        self.others = {*children(os.getpid())}
        self._adopt(is_on=True)

    @staticmethod
    def _adopt(*, is_on: bool) -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0)

    def reap(self) -> None:
        """Reap those that have ended; without it they stay in the table of processes."""
        for pid in {*children(os.getpid())} - self.others:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def end(self) -> None:
        """End them by SIGTERM, after `TERM_S` by SIGKILL, until none is left."""
        began_s = time.monotonic()
        signalled: set[int] = set()
        passed_s = 0.0
        while (left := {*children(os.getpid())} - self.others) and passed_s < END_S:
            passed_s = time.monotonic() - began_s
            is_late = passed_s > TERM_S
            for pid in left if is_late else left - signalled:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL if is_late else signal.SIGTERM)
            signalled |= left
            self.reap()
            time.sleep(POLL_S)
        self._adopt(is_on=False)


def _catches(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal (SigCgt in proc(5), a bit per signal)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next(
        (line for line in status.splitlines() if line.startswith("SigCgt:")),
        "SigCgt: 0",
    )
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


KEPT_ALIVE: list[object] = []
"""What this process keeps until it leaves: its process group, and what holds it.

torch 2.11 releases a tensor in gloo's thread, which waits for the interpreter's lock; whoever drops
the last reference to the group has that lock, and waits for the thread.
"""


def leave(code: int) -> NoReturn:
    """Flush the output and exit without tearing the interpreter down.

    A thread of gloo that releases a tensor during teardown aborts the process: under load about one
    rank in a hundred (pytorch issue 190489). torchrun then ends all ranks, rank 0 perhaps before it
    has written the record. After an error, a normal exit may also wait for collectives that this
    rank never joins.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
