"""What runs on this machine, read from /proc: whose child it is and what it was started with."""

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path


def alive_processes_of(marker: str) -> list[int]:
    """Pids, this one's excepted, whose command line or environment contains `marker`."""
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):  # it ended while we looked
            told = [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
            if marker.encode() in b"\0".join(told) and pid != os.getpid():
                found.append(pid)
    return found


def is_alive(pid: int) -> bool:
    """Whether `pid` still runs; a zombie does not."""
    return parent_of(pid) is not None


def parent_of(pid: int) -> int | None:
    """Who started `pid`; None where it has ended, be it buried or not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in brackets, may itself contain blanks and brackets.
    state, parent = text.rpartition(")")[2].split()[:2]
    return None if state in "ZX" else int(parent)


def descendants(ancestor: int) -> set[int]:
    """Pids alive below `ancestor`, orphans too where `ancestor` is their reaper."""
    parents = {pid: parent_of(pid) for pid in _pids()}
    below: set[int] = set()
    fresh = {ancestor}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - below
        below |= fresh
    return below


def end(pids: Collection[int], patience_s: float) -> None:
    """End descendants of this process: SIGTERM, up to `patience_s`, then SIGKILL."""
    _send(pids, signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    _send([pid for pid in pids if is_alive(pid)], signal.SIGKILL)


def bury_the_dead() -> None:
    """Collect every child that has ended, adopted orphans included, so that no zombie stays."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _send(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
