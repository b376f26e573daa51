"""How the processes of a cell end: with their job at the latest, and without a last quarrel."""

import ctypes
import os
import signal
import sys
from typing import NoReturn

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(_worker: int = 0) -> None:
    """Ask the kernel to kill this process when its parent dies, however that dies.

    torchrun puts every worker into a session of its own, so a signal to its process group misses
    them. The wish is not inherited: every DataLoader worker makes it again (the parameter is the
    worker number that a DataLoader passes). Other systems than Linux have no such call.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel knew of our wish
        os._exit(1)


def ignore_submitit_signal() -> None:
    """Let SIGUSR2 pass: submitit's handler would end a cell as FAILED, never to be requeued.

    SLURM sends it before the time limit and at preemption; its default is to kill us.
    """
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def leave(code: int) -> NoReturn:
    """End this rank here, without taking the interpreter down, and flush what it said.

    A thread of gloo that is just letting go of a tensor then meets an interpreter that is half
    gone, and aborts the process: under load every hundredth rank or so (pytorch issue 190489).
    torchrun answers by ending all ranks, rank 0 perhaps before it wrote the record. And after an
    error a normal exit may wait for collectives that this rank will never join.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
