"""Submission to SLURM: one sbatch call per job request, between two lines of the manifest."""

import contextlib
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.process_times import Process
from hpml_jobs.core.text import counted
from hpml_jobs.plan.cells import Plan, PlannedCell
from hpml_jobs.slurm.commands import ask_cluster, sbatch_environment
from hpml_jobs.status.query import query_slurm
from hpml_jobs.status.states import submitted_jobs, unanswered
from hpml_jobs.study.files import (
    encode,
    others_can_write,
    owner,
    take_from_others,
    write_whole,
    writing,
)
from hpml_jobs.study.manifest import History, ManifestEvent, ManifestLine, copies_of
from hpml_jobs.study.study import Study
from hpml_jobs.submit import scripts
from hpml_jobs.submit.job_requests import JobKind, JobRequest
from hpml_jobs.submit.selection import Selection

WRITERS = 16
"""Files that are written at the same time: on a file system of the network each waits for it."""

RESERVE_BYTES = 16_384
"""Room on the disk for what follows an sbatch call, beside twice the manifest's line."""

_SUBMITTED = re.compile(
    r"^(?:sbatch: )?Submitted batch job ([0-9]{1,15})(?: on cluster \S+)?\s*$",
    re.MULTILINE,
)

_PARSABLE = re.compile(r"(?:^|\n)([0-9]{1,15})(?:;[\w.-]+)?\s*\Z")
"""The last line of a site's sbatch that prints as `sbatch --parsable`: the id, and the cluster."""

_PREFIX = "sbatch: "
"""The beginning of sbatch's own lines on stderr."""

REFUSAL = re.compile(
    r"^(?:\S*/)?sbatch: (?:"
    r"error: Batch job submission failed: .*(?:[Ii]nvalid\b(?! auth)|specification|permitted|"
    r"denied|QOS|limit|not available|not supported|not in this partition|No partition|in DOWN|"
    r"are busy|dependency|disabled|Unspecified error)|"
    r"(?:error|fatal): (?!Batch job).*(?:[Ii]nvalid\b|not a valid|mutually exclusive|cli_filter|"
    r"No cluster)|"
    r"(?:unrecognized )?option '--)"
    r"|^sh: .*exec: ",
    re.MULTILINE,
)
"""What refuses a job: the controller, sbatch for its options, or the shell without an sbatch.

After any other end of sbatch, whatever its exit code, SLURM may have the job.
"""


class NoJobError(HpmlError):
    """sbatch printed no job id, and SLURM lists no such job yet."""

    happening = ManifestEvent.SENDING
    what, remedy = "there is no answer about", ": repeat the command in a minute"


class RefusedError(NoJobError):
    """sbatch refused a job; the message has SLURM's reason."""

    happening = ManifestEvent.REFUSED
    what, remedy = "sbatch refused", ""


def send(
    plan: Plan,
    requests: Sequence[JobRequest],
    before_each: Callable[[], None] = lambda: None,
) -> Iterator[tuple[JobRequest, dict[str, str]]]:
    """Submit requests one by one; yield each with the jobs of its cells, by slug.

    `before_each` may raise, to stop between two sbatch calls.

    Raises:
        NoJobError: SLURM refused one, or may have it; those before it are in the manifest.
        HpmlError: a file cannot be written.
    """
    if not requests:
        return
    ask_cluster(plan.cluster.clusters)
    check_folder(plan.study)
    take_from_others(plan.study.cells_folder)
    write_cells(
        plan.study, [planned for request in requests for planned in request.cells]
    )
    plan.study.write_cluster(plan.cluster)
    submitted = 0
    for request in requests:
        before_each()
        yield request, _send(plan.study, plan.cluster, request, submitted)
        submitted += len(request.cells)


def check_folder(study: Study) -> None:
    """Refuse a folder whose path SLURM would interpret, or in which other users can write.

    Jobs unpickle the files that submitit writes there.
    """
    if any(mark in str(study.slurm) for mark in "%\n\\"):
        raise HpmlError(
            f"{study.root}: SLURM cannot write logs to a path with %, \\ or newline; "
            "choose another outputs="
        )
    for folder in (study.slurm, *study.root.glob("cells")):  # doctor's study has none
        if folder.stat().st_uid != os.geteuid():
            raise HpmlError(
                f"study {study.name} belongs to {owner(folder)}, and jobs run files in it: use "
                "another study= or outputs="
            )
    if others_can_write(study.slurm):
        raise HpmlError(
            f"{study.slurm}: other users can write there, and jobs run files in it; chmod 700 it"
        )


def write_cells(study: Study, cells: Iterable[PlannedCell]) -> None:
    """Write cell.json of every cell, before any job can read it; only this user may change it.

    A job imports code from where cell.json says.
    """

    def write_cell(planned: PlannedCell) -> None:
        path = study.cell(planned.slug).cell_json
        with writing(path):
            # the manifest has a copy
            write_whole(path, encode(planned.file), sync=False)
            take_from_others(path.parent)

    with ThreadPoolExecutor(WRITERS) as writers:
        for _ in writers.map(write_cell, cells):
            pass


def _send(
    study: Study, cluster: Cluster, request: JobRequest, submitted: int
) -> dict[str, str]:
    """Submit a request between two lines of the manifest; return the jobs of its cells, by slug."""
    slugs = request.slugs
    line = ManifestLine(
        happening=ManifestEvent.SENDING,
        batch=uuid.uuid4().hex,
        cells=slugs,
        files=copies_of({planned.slug: planned.file for planned in request.cells}),
        shape=str(request.shape),
        retry=request.is_retry,
        excluded=request.exclude,
        name=study.job_name,
    )

    if request.kind is JobKind.ARRAY:
        pickle = study.slurm / request.pickle_name
        with writing(pickle):
            write_whole(pickle, scripts.pickled(study, request))
    try:
        job = _submit(study, line, scripts.script(study, cluster, request))
    except NoJobError as error:
        cells = f"{counted(len(slugs), 'cell')} ({request.shape})"
        before = ""
        if submitted:
            before = f"; submitted before it: {counted(submitted, 'cell')}"
        message = f"{error.what} {cells}: {error}{error.remedy}{before}"
        raise type(error)(message) from error
    jobs = request.jobs_of_cells(job)
    line = replace(line, files={}, happening=ManifestEvent.SENT, jobs=jobs)
    try:
        study.append(line)
    except HpmlError as error:  # the job is found again by its script
        raise HpmlError(f"job {job} was submitted, but {error}") from error
    return dict(zip(slugs, jobs, strict=True))


def _submit(study: Study, line: ManifestLine, script: str) -> str:
    """Submit a script after a line of the manifest, and return its job id.

    Another line says that it was refused; without an answer the line is repeated, since SLURM may
    list the job a moment later. Nothing is submitted unless the disk has room for all that follows.

    Raises:
        NoJobError: there is no job id.
    """

    def announce(process: Process) -> None:
        """Write the line before sbatch; if sbatch's answer is lost, it stays open."""
        study.append(replace(line, sbatch=process))

    reserve = study.slurm / f"{line.batch}.reserve"
    with writing(reserve):
        write_whole(reserve, bytes(RESERVE_BYTES + 2 * len(encode(line))))
    try:
        try:
            return sbatch(study, script, line.batch, announce)
        finally:
            reserve.unlink()  # its room is for the line after sbatch
    except NoJobError as error:
        words = line.words or str(error)
        ended = replace(line, files={}, happening=error.happening, words=words)
        study.append(ended)
        raise


def sbatch(
    study: Study,
    script: str,
    batch: str,
    announce: Callable[[Process], None] = lambda process: None,
) -> str:
    """Submit a script and return its job id; then the script's file is named after the job.

    sbatch waits until `announce` has noted its process, and does not run if this program ends
    before. It is in a session of its own: Ctrl-C in the terminal does not end it halfway. If it
    prints no job id, the job is found by the name of its script, which is that of the batch.

    Raises:
        RefusedError: SLURM refused it.
        NoJobError: sbatch's answer has no job id, and SLURM lists no such job.
        HpmlError: the script cannot be written.
    """
    path = study.slurm / f"{batch}.sh"
    with writing(path):
        write_whole(path, script.encode())
    with subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _ && exec sbatch "$1" < /dev/null', "sh", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=sbatch_environment(script),
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            announce(Process.of(process.pid))
            out, err = process.communicate("submit\n")
        except BaseException:
            # a site's wrapper and its sbatch
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    # SLURM has the job, even if a site's wrapper failed after that
    job = job_id(out) or _unanswered_job(study, batch, process.returncode, out, err)
    with contextlib.suppress(OSError):  # the name is for people
        path.replace(study.slurm / f"{job}_submission.sh")
    return job


def _unanswered_job(study: Study, batch: str, code: int, out: str, err: str) -> str:
    """Return the job of an sbatch that printed no job id.

    Raises:
        RefusedError: sbatch's words refuse it.
        NoJobError: SLURM lists no such job.
    """
    words = slurm_message(err or out)
    if REFUSAL.search(err):
        raise RefusedError(words)
    submitted = submitted_jobs([study.job_name, study.closing_name])
    if batch in submitted.jobs:
        return submitted.jobs[batch].job
    listed = submitted.complaint or "SLURM lists no such job"
    raise NoJobError(
        f"sbatch gave no job id (exit code {code}: {words[:200]}), and {listed}"
    )


def job_id(printed: str) -> str | None:
    """Return the id in what sbatch prints: the last line of its own, whatever a banner says.

    >>> job_id("your last job 4711 failed\\nSubmitted batch job 17 on cluster a\\n")
    '17'
    >>> [job_id(text) for text in ("Welcome!\\n17;a\\n", "see job 4711\\n", "4711\\nJob 17\\n")]
    ['17', None, None]
    >>> job_id("Submitted batch job 17\\nSubmitted batch job 4711 (yesterday) is still pending\\n")
    '17'
    """
    text = printed.replace("\r", "")
    ids = _SUBMITTED.findall(text) or _PARSABLE.findall(text)
    return ids[-1] if ids else None


def send_followup(selection: Selection, jobs: Iterable[str]) -> str | None:
    """Submit the follow-up job, if the plan wants one, and return its id.

    It starts when `jobs` and the active jobs of cells that were left out have ended, failed or not.
    Without new jobs the one that waits for the others already, with the same task, stays.

    Raises:
        HpmlError: SLURM refused it.
    """
    plan, study, new = selection.plan, selection.plan.study, [*jobs]
    earlier = [
        state.job for state in selection.left_out.values() if state.outcome.active
    ]
    awaited = [*filter(None, (*new, *earlier))]
    if not (plan.has_followup and awaited):
        return None
    kind = "next step" if plan.goal else "report"
    waiting = None if new else _waiting_followup(study, kind, selection.status.history)
    if waiting:
        return waiting
    line = ManifestLine(
        happening=ManifestEvent.SENDING,
        batch=uuid.uuid4().hex,
        cells=(),
        closing=True,
        words=f"{kind}, after {plan.step or 'all cells'}",
        name=study.closing_name,
    )

    try:
        job = _submit(study, line, scripts.followup_script(plan, awaited))
    except NoJobError as error:
        raise HpmlError(
            f"the cells were submitted, but {error.what} the follow-up job: {error}; "
            "collect the study when they have finished"
        ) from error
    study.append(replace(line, happening=ManifestEvent.SENT, jobs=(job,)))
    return job


def _waiting_followup(study: Study, kind: str, history: History) -> str | None:
    """Return the follow-up job of this kind that has not ended; None if there is none.

    Raises:
        HpmlError: SLURM may have it.
    """
    for line in history.lost_followups:
        outcome, reason = unanswered(line)
        if line.words.startswith(kind) and outcome.may_run:
            raise HpmlError(f"follow-up job: {reason}; repeat the command in a minute")
    jobs = [job for job, words in history.closing.items() if words.startswith(kind)]
    answers = query_slurm(study, jobs, history.submissions)
    for job in reversed(jobs):
        state = answers.of(job).state
        if state and state.outcome.active:
            return job
    return None


def slurm_message(text: str) -> str:
    """Return SLURM's own lines of an error text, without Python's."""
    lines = [line.strip() for line in text.splitlines()]
    slurms = [line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)]
    return "; ".join(slurms) or " ".join(filter(None, lines))
