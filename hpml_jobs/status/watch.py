"""`watch`: the states of a study, live, until no cell is pending or running."""

from collections.abc import Callable
from time import sleep

from hpml_jobs.core.text import duration_text
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.status.states import StudyStatus, study_status
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.snapshot import RecordCache
from hpml_jobs.study.study import Study

SLOWEST_S = 60.0
"""While SLURM does not respond it is asked ever less often, at least this often."""


def watch_study(
    study: Study,
    every_s: float,
    show: Callable[[list[CellState], str], None],
    choose: Callable[[list[CellState]], list[CellState]] = list,
    cache: RecordCache | None = None,
) -> StudyStatus:
    """Call `show` with the chosen states every `every_s` seconds, and a note on SLURM.

    Return the last status, when no chosen cell is pending or running. A cell may be if its state is
    unknown because SLURM does not answer, or not completely.
    """
    pause_s = every_s
    cache = RecordCache() if cache is None else cache
    while True:
        status = study_status(study, cache=cache)
        states, complaint = choose(status.states), status.complaint
        pause_s = max(every_s, min(2 * pause_s, SLOWEST_S)) if complaint else every_s
        may_change = complaint and any(state.outcome is Outcome.UNKNOWN for state in states)
        note = f"SLURM does not answer ({complaint}); next query in {duration_text(pause_s)}"
        show(states, note if may_change else "")
        if not (may_change or any(state.outcome.active for state in states)):
            return status
        sleep(pause_s)
