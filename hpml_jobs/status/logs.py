"""Why a cell failed, in its own words: its traceback, or the end of its logs."""

from pathlib import Path

from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm.jobs import is_slurm
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.study import Study


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
