"""Why a cell failed: the traceback of its first failing rank, or the end of its logs."""

from pathlib import Path

from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm.jobs import is_slurm
from hpml_jobs.study.attempt import AttemptFolder
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.files import tail
from hpml_jobs.study.snapshot import CellState
from hpml_jobs.study.study import Study

END_BYTES = 200_000
"""The last lines of a log are looked for in so many bytes."""


def slurm_logs(study: Study, slug: str, job: str, nodes: int) -> list[Path]:
    """Return what SLURM and the wrapper print for a cell: of each node, or of a pack's step.

    Each path is tried by name: listing the folder for every cell would be slow.
    """
    if not is_slurm(job):
        return []
    paths = [study.slurm_log(job, part) for part in [*range(nodes), slug]]
    return [path for path in paths if path.exists()]


def log_text(study: Study, state: CellState, lines: int) -> str:
    """Return the first failing rank's traceback, or the last lines of the job's logs.

    Ranks that were stopped follow with where they were, and their stacks.
    """
    folder = study.cell(state.slug)
    latest = folder.latest_attempt()
    end = latest.read_end() if latest else None
    stacks = _stacks_text(latest, lines) if latest else ""
    if end and end.traceback:
        return f"rank {end.rank} failed first:\n{end.traceback}{stacks}"
    files = latest.logs() if latest else []
    files += slurm_logs(study, folder.slug, state.job or "", _nodes(folder))
    parts = [f"---- {file}\n{text}" for file in files if (text := last_lines(file, lines))]
    empty = ", ".join(str(file) for file in files)
    parts += [stacks] if stacks else []
    return "\n".join(parts) or (f"the logs are empty ({empty})" if files else "there is no log")


def _stacks_text(attempt: AttemptFolder, lines: int) -> str:
    """Return where the ranks of an attempt were, then their stacks; empty without stacks."""
    files = attempt.stack_files().values()
    stacks = [f"---- {file}\n{last_lines(file, lines)}" for file in files]
    return "\n".join([f"---- {attempt.activity()}", *stacks]) if stacks else ""


def _nodes(folder: CellFolder) -> int:
    try:
        return folder.read().cell.nodes
    except HpmlError:
        return 1


def last_lines(log: Path, lines: int) -> str:
    """Return the last lines of a log."""
    return "\n".join(tail(log, END_BYTES).splitlines()[-lines:])
