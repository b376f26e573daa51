"""`watch`: the states of a study, live, until no cell is under way."""

import time
from collections.abc import Callable

from hpml_jobs.study import CellState, Study
from hpml_jobs.submit.status import states


def watch_study(study: Study, every_s: float, show: Callable[[list[CellState]], None]) -> None:
    """Call `show` with fresh states every `every_s` seconds; returns when nothing is under way."""
    while True:
        now = states(study)
        show(now)
        if not any(state.outcome.active for state in now):
            return
        time.sleep(every_s)
