"""Jobs whose ids were lost between sbatch and the manifest, found again by their output files."""

import contextlib
import re
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.results.rows import by_key
from hpml_jobs.slurm.commands import ask_slurm
from hpml_jobs.slurm.jobs import SACCT_FIELDS, array_ids, parse_sacct, table_lines
from hpml_jobs.status.query import NO_TABLE, ask_controller, is_log_of, output_path
from hpml_jobs.study.manifest import History, ManifestEvent, ManifestLine, fold
from hpml_jobs.study.study import Study

_JOB = re.compile(r"[0-9]{1,15}(_[0-9]{1,9})?")
"""A job, or a task of an array."""


class RecoveredHistory(NamedTuple):
    """The manifest's history with the jobs that were found; SLURM's complaint if it has one.

    `no_squeue`: squeue is not installed, so that a later question would fail too. `fault` is why
    the manifest cannot be read; then the history is empty.
    """

    history: History
    complaint: str = ""
    no_squeue: bool = False
    fault: str = ""


def read_history(study: Study) -> RecoveredHistory:
    """Read the manifest, find lost jobs, and add these to the manifest if it is writable.

    A job is this study's if its output goes into the study's folder, and a line's if it has as
    many tasks as the line has cells, which are in their order.
    """
    try:
        lines = list(study.lines())
    except HpmlError as fault:
        return RecoveredHistory(History(), fault=str(fault))
    history = fold(lines)
    if not history.lost_lines:
        return RecoveredHistory(history)
    names = [line.name or study.job_name for line in history.lost_lines]
    name = ",".join(dict.fromkeys(names))
    answer = ask_slurm("squeue", "-r", "-t", "all", "-n", name, "-o", "%i")
    queued = table_lines(answer.text)
    if answer.code or queued is None:
        complaint = answer.complaint or NO_TABLE
        return RecoveredHistory(
            history, f"squeue: {complaint}", no_squeue=answer.absent
        )
    listed = dict.fromkeys([*queued, *_accounted(name, history)])
    noted = {array for line in lines for array in array_ids(line.jobs)}
    tasks = ((*array_ids([job]), job) for job in listed if _JOB.fullmatch(job))
    unknown = by_key((array, job) for array, job in tasks if array not in noted)
    try:
        recovered = _matched(study, history, unknown)
    except HpmlError as fault:
        return RecoveredHistory(history, str(fault))
    # somebody else's study: the jobs are used all the same
    with contextlib.suppress(HpmlError):
        for line in recovered:
            study.append(line)
    return RecoveredHistory(fold([*lines, *recovered]))


def _accounted(name: str, history: History) -> list[str]:
    """Return the jobs of names that accounting has since the oldest sbatch without an answer.

    It lists jobs that a cut answer of squeue does not; none if there is no accounting.
    """
    oldest = min(datetime.fromisoformat(line.time) for line in history.lost_lines)
    since = oldest.astimezone() - timedelta(minutes=1)
    day_and_time = since.strftime("%Y-%m-%dT%H:%M:%S")
    selected = ("--name", name, "-S", day_and_time)
    answer = ask_slurm("sacct", "-X", "-P", "-n", *selected, "-o", SACCT_FIELDS)
    if answer.code:
        return []
    return list(parse_sacct(answer.text))


def _matched(
    study: Study, history: History, tasks: dict[str, list[str]]
) -> list[ManifestLine]:
    """Return the lines that a job belongs to, with their jobs; `tasks` of each unknown array."""
    free = sorted(tasks, key=int)  # in order of submission
    recovered = []
    for line in history.lost_lines:
        matches = (array for array in free if _is_of(study, line, array, tasks[array]))
        match = next(matches, None)
        if match is not None:
            free.remove(match)
            recovered.append(_answered(line, tasks[match]))
    return recovered


def _answered(line: ManifestLine, jobs: list[str]) -> ManifestLine:
    ordered = sorted(jobs, key=lambda job: int(job.rpartition("_")[2]))
    is_shared = len(ordered) == 1 and not line.closing
    if is_shared:
        ordered *= len(line.cells)
    return msgspec.structs.replace(
        line, happening=ManifestEvent.SENT, jobs=tuple(ordered), files={}
    )


def _is_of(study: Study, line: ManifestLine, array: str, jobs: list[str]) -> bool:
    """Return whether a job that the manifest does not name is from the sbatch of a line.

    Raises:
        HpmlError: the controller does not say.
    """
    answer = ask_controller(array)
    if answer.complaint:
        raise HpmlError(answer.complaint)
    output = output_path(answer.text)
    if not is_log_of(study, output):
        return False
    if output.endswith("_closing_log.out") != line.closing:
        return False
    is_single = re.search(r"_(pack|ladder|closing)_log\.out$", output) is not None
    return len(jobs) == (1 if is_single else len(line.cells))
