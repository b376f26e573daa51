"""Ctrl-C during a submission: it takes effect when the present step has ended."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

NOTE = "stopping after the present step; press Ctrl-C again to stop at once"


class Interrupts:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.is_requested = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self.is_requested:
            raise KeyboardInterrupt


@contextmanager
def deferred_interrupts(notify: Callable[[str], None]) -> Iterator[Interrupts]:
    """Let the first Ctrl-C only be noted, so that no job is submitted without a manifest line.

    The second one raises KeyboardInterrupt at once.
    """
    interrupts = Interrupts()
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if not is_main or before is signal.SIG_IGN:
        yield interrupts
        return

    def note(_signal: int, _frame: FrameType | None) -> None:
        if interrupts.is_requested:
            raise KeyboardInterrupt
        interrupts.is_requested = True
        notify(NOTE)

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)
