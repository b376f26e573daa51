"""No process of a cell outlives its job: the kernel ends us when our parent is gone."""

import ctypes
import os
import signal
import sys

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
