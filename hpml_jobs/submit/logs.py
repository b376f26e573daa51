"""Why a cell failed, in its own words; and the log of a running one, followed."""

import time
from collections.abc import Iterator
from pathlib import Path

from hpml_jobs.attempt import AttemptFolder
from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm import Outcome, is_slurm
from hpml_jobs.study import CellFolder, CellState, Study

POLL_S = 0.5


def slurm_logs(study: Study, folder: CellFolder, job: str) -> list[Path]:
    """What SLURM and the wrapper print for a cell: for each of its nodes, or for a pack's step.

    Named one by one: looking for them would read the whole folder for every cell.
    """
    if not is_slurm(job):
        return []
    try:
        nodes = folder.read().cell.nodes
    except HpmlError:
        nodes = 1
    paths = [study.slurm / f"{job}_{part}_log.err" for part in [*range(nodes), folder.slug]]
    return [path for path in paths if path.exists()]


def log_text(study: Study, state: CellState, lines: int) -> str:
    """Why a cell failed: the first failing rank's traceback, or the end of the job's logs."""
    folder = study.cell(state.slug)
    latest, end = folder.latest_attempt(), folder.last_end()
    if end and end.traceback:
        return f"rank {end.rank} failed first:\n{end.traceback}"
    files = latest.logs() if latest else []
    files += slurm_logs(study, folder, state.job or "")
    parts = [f"---- {file}\n{text}" for file in files if (text := _end_of(file, lines))]
    empty = ", ".join(str(file) for file in files)
    return "\n".join(parts) or (f"nothing was printed ({empty})" if files else "no log was written")


def _end_of(file: Path, lines: int) -> str:
    return "\n".join(tail(file, 200_000).splitlines()[-lines:])


def tail(file: Path, size: int) -> str:
    """The last bytes of a file as text; empty where it cannot be read."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - size))
            return opened.read().decode(errors="replace")
    except OSError:
        return ""


def running_last(study: Study, states: list[CellState]) -> CellState | None:
    """Of the running cells the one whose attempt began last."""

    def began(state: CellState) -> float:
        latest = study.cell(state.slug).latest_attempt()
        try:
            return latest.about.stat().st_mtime if latest else 0.0
        except OSError:
            return 0.0

    running = [state for state in states if state.outcome is Outcome.RUNNING]
    return max(running, key=began, default=None)


def follow(attempt: AttemptFolder, lines: int) -> Iterator[str]:
    """The end of an attempt's log, then what is added to it, until the attempt ends.

    An attempt whose job was killed leaves no end: the caller looks whether the cell still runs
    whenever an empty text comes, which it does about every half second of silence.
    """
    log = attempt.log_of(0)
    text = _end_of(log, lines)
    yield f"{text}\n" if text else ""
    position = log.stat().st_size if log.exists() else 0
    while True:
        ended = attempt.end.exists()
        added = _from(log, position)
        position += len(added)
        yield added.decode(errors="replace")
        if ended:
            return
        if not added:
            time.sleep(POLL_S)


def _from(log: Path, position: int) -> bytes:
    try:
        with log.open("rb") as opened:
            opened.seek(position)
            return opened.read()
    except OSError:
        return b""
