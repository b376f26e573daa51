"""Jobs whose ids were lost between sbatch and the manifest, found again by where they write."""

import re
from typing import NamedTuple

import msgspec

from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm.commands import ask_slurm
from hpml_jobs.slurm.jobs import array_ids
from hpml_jobs.study.manifest import History, ManifestEvent, ManifestLine
from hpml_jobs.study.study import Study

_OUTPUT = re.compile(r"^\s*StdOut=(?P<path>.*)$", re.MULTILINE)


class Lost(NamedTuple):
    """What is known now: the history, and SLURM's complaint where it did not answer."""

    history: History
    silent: str = ""


def recovered(study: Study, history: History) -> Lost:
    """The history with lost jobs in it, noted in the manifest too where that can be written.

    A job is this study's if its output goes into the study's folder, and a line's if it has as
    many tasks as the line has cells, which are in their order.
    """
    if not history.unanswered:
        return Lost(history)
    answer = ask_slurm("squeue", "-h", "-r", "-t", "all", "-n", f"hpml-{study.name}", "-o", "%i")
    if answer.code:
        return Lost(history, f"squeue: {answer.complaint}")
    known = {job for line in study.lines() for job in array_ids(line.jobs)}
    tasks: dict[str, list[str]] = {}
    for job in answer.text.split():
        (array,) = array_ids([job])
        if array not in known:
            tasks.setdefault(array, []).append(job)
    free = dict(sorted(tasks.items(), key=lambda pair: int(pair[0])))  # as they were sent
    found = []
    for line in {line.batch: line for line in history.unanswered.values()}.values():
        match = next((array for array in free if _is_of(study, line, array, free[array])), None)
        if match is not None:
            found.append(_answered(line, free.pop(match)))
    for line in found:
        try:
            study.append(line)
        except HpmlError:  # somebody else's study: for this look it is known all the same
            break
    jobs = {slug: job for line in found for slug, job in zip(line.cells, line.jobs, strict=True)}
    left = {slug: line for slug, line in history.unanswered.items() if slug not in jobs}
    return Lost(history._replace(jobs=history.jobs | jobs, unanswered=left))


def _answered(line: ManifestLine, jobs: list[str]) -> ManifestLine:
    ordered = sorted(jobs, key=lambda job: int(job.rpartition("_")[2]))
    shared = ordered * len(line.cells) if len(ordered) == 1 else ordered
    return msgspec.structs.replace(line, happening=ManifestEvent.SENT, jobs=tuple(shared))


def _is_of(study: Study, line: ManifestLine, array: str, jobs: list[str]) -> bool:
    """Whether a job that the manifest does not know came of a line's sbatch."""
    text = ask_slurm("scontrol", "show", "job", array).text
    output = next((found["path"] for found in _OUTPUT.finditer(text)), "")
    if not output.startswith(f"{study.slurm.resolve()}/"):
        return False
    pack = re.search(r"_(pack|ladder)_log\.out$", output) is not None
    return len(jobs) == 1 if pack else len(jobs) == len(line.cells)
