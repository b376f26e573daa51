"""Files into which a process writes the stacks of its threads at a signal.

Scripts that are measured begin with it, so it imports nothing but the standard library.
"""

import faulthandler
import fcntl
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO

STACK_SIGNAL = signal.SIGUSR2
"""The signal at which a rank, or one of its DataLoader workers, writes its Python stacks.

SLURM sends it before the time limit and at preemption, because submitit asks for it.
"""

HOST_VARIABLE = "HPML_JOBS_HOST"
"""Environment variable with SLURM's name of the node."""

RANK_VARIABLE = "HPML_JOBS_RANK"
"""Environment variable with the rank of a script's process whose launcher sets none."""

HIGH = 512
"""The least number of the open file: a program that closes all files opens its next ones below."""

_files: list[IO[bytes]] = []
"""The open file: faulthandler keeps only its descriptor."""

_is_named: list[str] = []
"""The file of this process by its rank; its children write there too."""


def write_stacks_on_signals(path: str) -> None:
    """Write the stacks of all threads to a file at STACK_SIGNAL, SIGTERM or a crash.

    faulthandler works in C, also while Python waits in a collective or a lock. SIGTERM ends the
    process afterwards, as before. DataLoader workers inherit the handler and the file: they append
    to it. It costs nothing until a signal comes. What a script handles by itself is left to it.
    """
    _is_named[:] = [path]
    _register(path)


def _register(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120  (pathlib is slow)
    file = open(path, "ab", buffering=0)  # noqa: PTH123, SIM115  (it stays open)
    with suppress(OSError):  # so many files may not be open here
        file = os.fdopen(
            fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, HIGH), "ab", buffering=0
        )
    _files[:] = [file]
    if not faulthandler.is_enabled():
        faulthandler.enable(file)
    if signal.getsignal(STACK_SIGNAL) in (signal.SIG_DFL, signal.SIG_IGN):
        faulthandler.register(STACK_SIGNAL, file, all_threads=True)
    faulthandler.register(signal.SIGTERM, file, all_threads=True, chain=True)


def begin_script(folder: str, environment: Mapping[str, str]) -> None:
    """Let a process of a script write its stacks into a folder: by its rank, if it has one.

    Of the processes that have the same number in their environment the first one has the rank, and
    what multiprocessing starts for it. Others are told apart by their number in the system.
    """
    ranks = (environment.get(name) for name in ("RANK", "SLURM_PROCID", RANK_VARIABLE))
    rank = next(filter(None, ranks), "")
    path = f"{folder}/rank{rank}.txt"
    if not rank.isdecimal():
        _begin_other(folder, environment.get(HOST_VARIABLE, ""))
    elif _FORK in sys.orig_argv or not os.path.exists(path):  # noqa: PTH110
        write_stacks_on_signals(path)


_FORK = "--multiprocessing-fork"
"""A word of the command by which multiprocessing starts a process."""


def _begin_other(folder: str, host: str) -> None:
    def begin() -> None:
        if not _is_named:
            with suppress(OSError):
                _register(f"{folder}/process{os.getpid()}-{os.getppid()}-{host}.txt")

    begin()
    os.register_at_fork(after_in_child=begin)
