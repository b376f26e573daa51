"""Jobs whose ids were lost between sbatch and the manifest, found again by their output files."""

import re
from typing import NamedTuple

import msgspec

from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm.commands import ask_slurm
from hpml_jobs.slurm.jobs import array_ids
from hpml_jobs.study.manifest import History, ManifestEvent, ManifestLine, fold
from hpml_jobs.study.study import Study

_OUTPUT = re.compile(r"^\s*StdOut=(?P<path>.*)$", re.MULTILINE)


class RecoveredHistory(NamedTuple):
    """The manifest's history with the jobs that were found; SLURM's complaint if it has one."""

    history: History
    complaint: str = ""


def read_history(study: Study) -> RecoveredHistory:
    """Read the manifest, find lost jobs, and add these to the manifest if it is writable.

    A job is this study's if its output goes into the study's folder, and a line's if it has as
    many tasks as the line has cells, which are in their order.
    """
    lines = list(study.lines())
    history = fold(lines)
    if not history.unanswered:
        return RecoveredHistory(history)
    answer = ask_slurm("squeue", "-h", "-r", "-t", "all", "-n", f"hpml-{study.name}", "-o", "%i")
    if answer.code:
        return RecoveredHistory(history, f"squeue: {answer.complaint}")
    noted = {array for line in lines for array in array_ids(line.jobs)}
    tasks: dict[str, list[str]] = {}
    for job in answer.text.split():
        (array,) = array_ids([job])
        if array not in noted:
            tasks.setdefault(array, []).append(job)
    recovered = _matched(study, history, tasks)
    for line in recovered:
        try:
            study.append(line)
        except HpmlError:  # somebody else's study: the jobs are used all the same
            break
    return RecoveredHistory(fold([*lines, *recovered]))


def _matched(study: Study, history: History, tasks: dict[str, list[str]]) -> list[ManifestLine]:
    """Return the lines that a job belongs to, with their jobs; `tasks` of each unknown array."""
    free = dict(sorted(tasks.items(), key=lambda item: int(item[0])))  # in order of submission
    recovered = []
    for line in {line.batch: line for line in history.unanswered.values()}.values():
        match = next((array for array in free if _is_of(study, line, array, free[array])), None)
        if match is not None:
            recovered.append(_answered(line, free.pop(match)))
    return recovered


def _answered(line: ManifestLine, jobs: list[str]) -> ManifestLine:
    ordered = sorted(jobs, key=lambda job: int(job.rpartition("_")[2]))
    shared = ordered * len(line.cells) if len(ordered) == 1 else ordered
    return msgspec.structs.replace(line, happening=ManifestEvent.SENT, jobs=tuple(shared))


def _is_of(study: Study, line: ManifestLine, array: str, jobs: list[str]) -> bool:
    """Return whether a job that the manifest does not name is from the sbatch of a line."""
    text = ask_slurm("scontrol", "show", "job", array).text
    output = next((match["path"] for match in _OUTPUT.finditer(text)), "")
    if not output.startswith(f"{study.slurm.resolve()}/"):
        return False
    pack = re.search(r"_(pack|ladder)_log\.out$", output) is not None
    return len(jobs) == 1 if pack else len(jobs) == len(line.cells)
