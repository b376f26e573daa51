"""Python stacks of a rank and its DataLoader workers, written when a signal asks for them."""

import faulthandler
import signal
from typing import IO

from hpml_jobs.core.processes import STACK_SIGNAL
from hpml_jobs.study.attempt import AttemptFolder

_files: list[IO[bytes]] = []
"""The open file: faulthandler keeps only its descriptor."""


def write_stacks_on_signals(rank: int, folder: AttemptFolder) -> None:
    """Write the stacks of all threads to `stacks/rank<R>.txt` at STACK_SIGNAL, SIGTERM or a crash.

    faulthandler works in C, also while Python waits in a collective or a lock. SIGTERM ends the
    process afterwards, as before. DataLoader workers inherit the handler and the file: they append
    to it. It costs nothing until a signal comes.
    """
    path = folder.stacks_of(rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("ab", buffering=0)
    _files.append(file)
    faulthandler.enable(file)
    faulthandler.register(STACK_SIGNAL, file, all_threads=True)
    faulthandler.register(signal.SIGTERM, file, all_threads=True, chain=True)
