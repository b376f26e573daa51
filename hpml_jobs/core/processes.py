"""Process lifetime: die with the parent, ignore submitit's USR2, exit without teardown."""

import ctypes
import os
import signal
import sys
from typing import NoReturn

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(_worker: int = 0) -> None:
    """Ask the kernel to kill this process when its parent dies, however that dies.

    torchrun puts every worker into a session of its own, so a signal to its process group misses
    them. The request is not inherited: every DataLoader worker makes it again (the parameter is the
    worker number that a DataLoader passes). Systems other than Linux have no such call.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel had the request
        os._exit(1)


def ignore_submitit_signal() -> None:
    """Ignore SIGUSR2: submitit's handler would end a cell as FAILED, so it is never requeued.

    SLURM sends it before the time limit and at preemption; the default action ends the process.
    """
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


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
