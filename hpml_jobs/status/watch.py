"""`watch`: the states of a study, live, until no cell is under way."""

from collections.abc import Callable
from time import sleep

from hpml_jobs.core.text import lasting
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.status.states import Known, standing
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.study import Study

SLOWEST_S = 60.0
"""While SLURM is silent it is asked ever less often, down to this."""


def watch_study(
    study: Study,
    every_s: float,
    show: Callable[[list[CellState], str], None],
    choose: Callable[[list[CellState]], list[CellState]] = list,
) -> list[CellState]:
    """Call `show` with the chosen fresh states every `every_s` seconds, and a note on SLURM.

    Returns the last ones when none is under way; what is unknown because SLURM is silent may be.
    """
    pause_s = every_s
    known: Known = {}
    while True:
        found = standing(study, judged=False, known=known)
        now, silent = choose(found.states), found.seen.silent
        pause_s = max(every_s, min(2 * pause_s, SLOWEST_S)) if silent else every_s
        waits = silent and any(state.outcome is Outcome.UNKNOWN for state in now)
        asks = f"SLURM does not answer ({found.seen.no_queue})"
        show(now, f"{asks}; asked again in {lasting(pause_s)}" if waits else "")
        if not (waits or any(state.outcome.active for state in now)):
            return now
        sleep(pause_s)
