"""Processes of this machine, read from /proc: parents, command lines, environments."""

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path


def alive_processes_of(marker: str) -> list[int]:
    """Return the pids, except this one, whose command line or environment has `marker`."""
    pids = []
    for pid in _pids():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            texts = [
                Path(f"/proc/{pid}/{name}").read_bytes()
                for name in ("cmdline", "environ")
            ]
            if marker.encode() in b"\0".join(texts) and pid != os.getpid():
                pids.append(pid)
    return pids


def command_of(pid: int) -> str:
    """Return the state and the command line of `pid`, or "" if it has ended."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return f"{state} {Path(f'/proc/{pid}/cmdline').read_text()}".replace("\0", " ")
    return ""


def is_alive(pid: int) -> bool:
    """Return whether `pid` still runs; a zombie does not."""
    return parent_of(pid) is not None


def parent_of(pid: int) -> int | None:
    """Return the parent of `pid`, or None if it has ended or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may itself contain spaces and parentheses.
    state, parent = text.rpartition(")")[2].split()[:2]
    return None if state in "ZX" else int(parent)


def descendants(ancestor: int) -> set[int]:
    """Return the live descendants of `ancestor`, orphans that it adopted included."""
    parents = {pid: parent_of(pid) for pid in _pids()}
    below: set[int] = set()
    generation = {ancestor}
    while generation:
        generation = {
            pid for pid, parent in parents.items() if parent in generation
        } - below
        below |= generation
    return below


def terminate(pids: Collection[int], patience_s: float) -> None:
    """End descendants of this process by SIGTERM, after `patience_s` by SIGKILL."""
    _send(pids, signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    _send([pid for pid in pids if is_alive(pid)], signal.SIGKILL)


def reap_children() -> None:
    """Wait for every ended child, adopted orphans included, so that no zombie is left."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _send(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _pids() -> Iterator[int]:
    return (
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()
    )
