"""Submission to SLURM: one sbatch call per job request, between two lines of the manifest."""

import contextlib
import os
import re
import subprocess
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.process_times import Process
from hpml_jobs.core.text import counted
from hpml_jobs.errors import HpmlError
from hpml_jobs.plan.plan import Plan, PlannedCell
from hpml_jobs.slurm.commands import scrubbed
from hpml_jobs.slurm.jobs import array_ids
from hpml_jobs.status.recover import read_history
from hpml_jobs.study.files import encode, others_can_write, take_from_others, write_whole
from hpml_jobs.study.manifest import ManifestEvent, ManifestLine, copies_of
from hpml_jobs.study.study import Study
from hpml_jobs.submit import scripts
from hpml_jobs.submit.job_requests import JobKind, JobRequest

WRITERS = 16
"""Files that are written at the same time: on a file system of the network each waits for it."""

RESERVE_BYTES = 16_384
"""Room on the disk for what follows an sbatch call, beside twice the manifest's line."""

_JOB_ID = re.compile(r"job ([0-9]{1,15})")
"""The id in sbatch's `Submitted batch job 17`."""

_PREFIX = "sbatch: "
"""The beginning of sbatch's own lines on stderr."""


class RefusedError(HpmlError):
    """sbatch refused a job; the message has SLURM's reason."""


class NoJobIdError(HpmlError):
    """sbatch ended well without a job id: SLURM may have the job."""


class SentRequest(NamedTuple):
    """A job request that SLURM accepted; `jobs` are those of its cells, by slug."""

    request: JobRequest
    jobs: dict[str, str]

    def __str__(self) -> str:
        """For people, e.g. `job 101: 3 x 1 node x 4 rtx8000, 12 CPUs, 30 min`."""
        (job,) = array_ids(self.jobs.values())
        return f"job {job}: {self.request}"


def send(
    study: Study,
    cluster: Cluster,
    requests: list[JobRequest],
    before_each: Callable[[], None] = lambda: None,
) -> Iterator[SentRequest]:
    """Submit requests one by one; yield each as soon as SLURM accepted it.

    `before_each` may raise, to stop between two sbatch calls.

    Raises:
        RefusedError: SLURM refused one; those before it are in the manifest.
        HpmlError: sbatch's answer was lost, or the study's folder cannot be used.
    """
    if not requests:
        return
    check_folder(study)
    write_cells(study, (planned for request in requests for planned in request.cells))
    study.write_cluster(cluster)
    submitted = 0
    for request in requests:
        before_each()
        yield _send(study, cluster, request, submitted)
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
    if others_can_write(study.slurm):
        raise HpmlError(
            f"{study.slurm}: other users can write there, and jobs run files in it; "
            "chmod 700 it if it is yours, else choose another study="
        )
    if not study.cells_folder.exists():  # doctor's study has none
        return
    if study.cells_folder.stat().st_uid != os.geteuid():
        raise HpmlError(
            f"{study.cells_folder} is another user's, and jobs run the code that its files name: "
            "choose another study="
        )
    take_from_others(study.cells_folder)


def write_cells(study: Study, cells: Iterable[PlannedCell]) -> None:
    """Write cell.json of every cell, before any job can read it; only this user may change it.

    A job imports code from where cell.json says.
    """

    def write(planned: PlannedCell) -> None:
        path = study.cell(planned.slug).cell_json
        with writing(path):
            write_whole(path, encode(planned.file), sync=False)  # the manifest has a copy
            take_from_others(path.parent)

    with ThreadPoolExecutor(WRITERS) as writers:
        for _ in writers.map(write, cells):
            pass


def _send(study: Study, cluster: Cluster, request: JobRequest, submitted: int) -> SentRequest:
    """Submit a request; nothing is submitted unless the disk has room for all that follows."""
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
    path = write_script(study, scripts.script(study, cluster, request))
    is_array = request.kind is JobKind.ARRAY
    if is_array:
        pickle = study.slurm / scripts.pickle_name(request)
        with writing(pickle):
            write_whole(pickle, scripts.pickled(study, request))
    reserve = study.slurm / f"{line.batch}.reserve"  # is removed when sbatch has answered
    with writing(reserve):
        write_whole(reserve, bytes(RESERVE_BYTES + 2 * len(encode(line))))
    process = start_sbatch(path)
    try:
        # if sbatch's answer is lost, this line stays open
        study.append(msgspec.structs.replace(line, sbatch=Process.of(process.pid)))
    except BaseException:
        process.kill()
        process.communicate()
        reserve.unlink()
        raise
    line = msgspec.structs.replace(line, files={})
    try:
        job = answer_of(process, study, path)
    except RefusedError as error:
        message = str(error)
        reserve.unlink()
        study.append(msgspec.structs.replace(line, happening=ManifestEvent.REFUSED, words=message))
        raise RefusedError(
            f"sbatch refused {counted(len(request.cells), 'cell')} ({request.shape}): {message}; "
            f"submitted before it: {counted(submitted, 'cell')}, see {study.manifest}"
        ) from error
    except NoJobIdError as error:
        reserve.unlink()
        return SentRequest(request, _recovered_jobs(study, slugs, error))
    except BaseException:
        reserve.unlink()
        raise
    is_plain = not is_array or len(slugs) == 1
    jobs = tuple(job if is_plain else f"{job}_{index}" for index in range(len(slugs)))
    reserve.unlink()
    try:
        study.append(msgspec.structs.replace(line, happening=ManifestEvent.SENT, jobs=jobs))
    except HpmlError as error:  # the job is found again by its log path
        raise HpmlError(f"job {job} was submitted, but {error}") from error
    return SentRequest(request, dict(zip(slugs, jobs, strict=True)))


def _recovered_jobs(study: Study, slugs: tuple[str, ...], error: NoJobIdError) -> dict[str, str]:
    """Return the jobs of cells whose sbatch printed no id, found by their log paths.

    Raises:
        HpmlError: SLURM does not list such a job.
    """
    history = read_history(study).history
    if not set(slugs) & set(history.unanswered):
        return {slug: history.jobs[slug] for slug in slugs}
    raise HpmlError(
        f"{error}, and squeue lists no job with this study's log path: run hpml-jobs status "
        f"{study.name} in a minute, which finds the job if SLURM has it"
    ) from error


def submit_followup(plan: Plan, jobs: Iterable[str]) -> str:
    """Submit the follow-up job and return its id; it starts when `jobs` have ended, failed or not.

    Raises:
        RefusedError: SLURM refused it.
    """
    job = sbatch(plan.study, scripts.followup_script(plan, jobs))
    line = ManifestLine(
        happening=ManifestEvent.SENT, batch=uuid.uuid4().hex, cells=(), jobs=(job,), closing=True
    )
    plan.study.append(line)
    return job


def sbatch(study: Study, script: str) -> str:
    """Submit a script and return its job id.

    Raises:
        RefusedError: SLURM refused it.
        NoJobIdError: sbatch's answer has no job id.
        HpmlError: the script cannot be written.
    """
    path = write_script(study, script)
    return answer_of(start_sbatch(path), study, path)


def write_script(study: Study, script: str) -> Path:
    """Write a script into the study's folder and return its path.

    Raises:
        HpmlError: it cannot be written.
    """
    path = study.slurm / f"{uuid.uuid4().hex}.sh"
    with writing(path):
        write_whole(path, script.encode())
    return path


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the file system into one that names the file.

    Raises:
        HpmlError: the file cannot be written.
    """
    try:
        yield
    except OSError as fault:
        raise HpmlError(f"{path} cannot be written: {fault.strerror}") from fault


def start_sbatch(script: Path) -> subprocess.Popen[str]:
    """Start the sbatch of a script; it waits for `answer_of`, so that its PID can be noted before.

    If this program ends before, sbatch does not run. It is in a session of its own: Ctrl-C in the
    terminal does not end it halfway.
    """
    with clean_environment():
        return subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _ && exec sbatch "$1" < /dev/null', "sh", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )


@contextlib.contextmanager
def clean_environment() -> Iterator[None]:
    """Remove the variables of a surrounding job: sbatch exports our environment into the job."""
    before = dict(os.environ)
    clean = scrubbed(before, inside_job="SLURM_JOB_ID" in before)
    os.environ.clear()
    os.environ.update(clean)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def answer_of(process: subprocess.Popen[str], study: Study, script: Path) -> str:
    """Let sbatch submit and return the job's id; then the script is named after the job.

    Raises:
        RefusedError: SLURM refused it.
        NoJobIdError: sbatch's answer has no job id.
    """
    with process:
        try:
            out, err = process.communicate("submit\n")
        except BaseException:
            process.kill()
            process.wait()
            raise
    if process.returncode:
        raise RefusedError(slurm_message(err or out))
    match = _JOB_ID.search(out)
    if match is None:
        raise NoJobIdError(f"sbatch ended with exit code 0, but printed no job id ({out[:200]!r})")
    job = match[1]
    with contextlib.suppress(OSError):  # the name is for people
        script.replace(study.slurm / f"{job}_submission.sh")
    return job


def slurm_message(text: str) -> str:
    """Return SLURM's own lines of an error text, without Python's."""
    lines = [line.strip() for line in text.splitlines()]
    slurms = [line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)]
    return "; ".join(slurms) or " ".join(line for line in lines if line)
