"""One rank of a cell: `python -m tests.device.rank PLACE CELL_FOLDER ATTEMPT_ID [FAULT]`.

PLACE is standin, or cpu for the same cell on the host. FAULT is a function of `faults`.
"""

import sys
from itertools import count

import torch

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.processes import leave
from hpml_jobs.worker import __main__ as rank
from hpml_jobs.worker import loop
from hpml_jobs.worker.instruments.timing import Devices, Window
from tests import device
from tests.device import faults, queued_gloo


def main(place: str, cell_folder: str, attempt_id: str, fault: str = "") -> int:
    """Measure the cell in this place, not on a GPU; return the rank's exit code."""
    if place == device.NAME:
        library = device.load()
        library.standin_hold(True)
        queued_gloo.register(library)
        refuse_waits()

    def devices_for(_cell: Cell, local_rank: int) -> Devices:
        torch.get_device_module(place).set_device(local_rank)
        return (torch.device(place, local_rank),)

    loop.devices_for = devices_for
    if fault:
        getattr(faults, fault)()
    return rank.main(cell_folder, attempt_id)


def refuse_waits() -> None:
    """Let an epoch fail whose loop waits for the device: a held one has then passed its start.

    In the warm-up epoch DDP reads from the device how rank 0 has filled the buckets.
    """
    leave_window, number = Window.__exit__, count()

    def leave_checked(
        window: Window, failure: type[BaseException] | None, *rest: object
    ) -> None:
        if not failure and next(number) and window.start.query():
            raise RuntimeError("the host waited for the device in the loop")
        leave_window(window, failure, *rest)

    Window.__exit__ = leave_checked


if __name__ == "__main__":
    leave(main(*sys.argv[1:]))
