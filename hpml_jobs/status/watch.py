"""A study watched until no cell is pending or running; the logs of its cells."""

from collections.abc import Callable
from pathlib import Path
from time import sleep

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import LAUNCHER_REPORT, duration_text
from hpml_jobs.status.evidence import script_logs, slurm_logs
from hpml_jobs.status.states import StudyStatus, study_status
from hpml_jobs.study.cell_folder import AttemptEnd, AttemptFolder, CellFolder
from hpml_jobs.study.files import tail
from hpml_jobs.study.snapshot import CellState, RecordCache
from hpml_jobs.study.study import Study

EVERY_S, SLOWEST_S = 5.0, 60.0
"""Between two looks at a study; while SLURM does not respond longer each time, up to the second."""


def watch_study(
    study: Study,
    show: Callable[[list[CellState], str], None],
    choose: Callable[[list[CellState]], list[CellState]] = list,
) -> StudyStatus:
    """Call `show` with the chosen states every `EVERY_S` seconds, and a note on SLURM.

    Return the last status, when no chosen cell is pending or running, and no step of `auto` is to
    come. A cell may be if its state is unknown because SLURM does not answer, or not completely.
    """
    pause_s = EVERY_S
    cache = RecordCache()
    while True:
        status = study_status(study, cache=cache)
        states, complaint = choose(status.states), status.complaint
        pause_s = min(2 * pause_s, SLOWEST_S) if complaint else EVERY_S
        outcomes, note = {state.outcome for state in states}, ""
        if complaint and Outcome.UNKNOWN in outcomes:
            note = f"SLURM does not answer ({complaint}); next query in {duration_text(pause_s)}"
        show(states, note)
        if not (note or status.goes_on or any(one.active for one in outcomes)):
            return status
        sleep(pause_s)


END_BYTES = 200_000
"""The last lines of a log are looked for in so many bytes."""


def log_text(study: Study, state: CellState, lines: int) -> str:
    """Return the first failing rank's traceback, or the last lines of the job's logs.

    Ranks that were stopped follow with where they were, and their stacks.
    """
    folder, job = study.cell(state.slug), state.job or ""
    latest = folder.latest_attempt()
    end: AttemptEnd | None = None
    stacks: list[str] = []
    files: list[Path] = []
    if latest:
        end = latest.read_end()
        is_wanted = state.outcome is not Outcome.CANCELLED
        stacks = _stacks(latest, lines) * is_wanted
        files = latest.logs()
    if end and end.traceback:
        return f"rank {end.rank} failed first:\n{end.traceback}" + "\n".join(stacks)
    files += slurm_logs(study, folder.slug, job, _nodes(folder))
    files = files or script_logs(study, job)
    ends = {file: last_lines(file, lines) for file in files}
    parts = [f"---- {file}\n{end_text}" for file, end_text in ends.items() if end_text]
    if parts or stacks:
        return "\n".join([*parts, *stacks])
    if not files:
        return "there is no log"
    return f"the logs are empty ({', '.join(map(str, files))})"


def _stacks(attempt: AttemptFolder, lines: int) -> list[str]:
    """Return where the processes of an attempt were, then their stacks; empty without stacks."""
    files = attempt.stack_files()
    stacks = [f"---- {file}\n{last_lines(file, lines)}" for file in files]
    return [f"---- {attempt.activity()}", *stacks] if stacks else []


def _nodes(folder: CellFolder) -> int:
    try:
        return folder.read().cell.nodes
    except HpmlError:
        return 1


def last_lines(log: Path, lines: int) -> str:
    """Return the last lines of a log before the launcher says that a process has failed."""
    text = tail(log, END_BYTES)
    of_processes = LAUNCHER_REPORT.sub("", text).rstrip() or text
    return "\n".join(of_processes.splitlines()[-lines:])
