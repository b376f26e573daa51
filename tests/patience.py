"""How long tests wait for what may hang: limits that scale with this machine and its load."""

import os
import time
from collections.abc import Callable

_LOOP_CPU_S = 0.03  # of the loop below on a usual machine


def _slowness() -> float:
    """Return how many times as long as on a usual, quiet machine work takes now, at least 1."""
    begun_s = time.process_time()
    sum(number * number for number in range(1_000_000))
    loop = (time.process_time() - begun_s) / _LOOP_CPU_S
    load = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return max(1.0, loop) * max(1.0, load)


# A session of tests measures it once: processes that this one starts inherit it.
_SLOWNESS = float(os.environ.get("TESTS_SLOWNESS") or _slowness())
os.environ["TESTS_SLOWNESS"] = str(_SLOWNESS)


def timeout(usual_s: float) -> float:
    """Return the limit of what takes `usual_s` on a usual machine: 20 times as long as here."""
    return 20 * usual_s * _SLOWNESS


PATIENCE_S = timeout(90)
"""The limit of a command, a job or a wait: none usually takes over 90 seconds."""


def wait_until(
    holds: Callable[[], object],
    what: str,
    has_ended: Callable[[], object] = lambda: False,
    every_s: float = 0.2,
) -> None:
    """Wait until a condition holds; fail at once when what would fulfil it has ended."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        is_last = has_ended()  # asked before the condition, which the end may fulfil
        if holds():
            return
        assert not is_last, f"ended before {what}"
        assert time.monotonic() < deadline_s, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(every_s)
