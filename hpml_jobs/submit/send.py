"""Submission of job requests to SLURM, with a manifest line before and after each sbatch call."""

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
from hpml_jobs.plan.plan import PlannedCell
from hpml_jobs.slurm.jobs import array_ids
from hpml_jobs.status.recover import read_history
from hpml_jobs.study.files import encode, take_from_others, write_whole
from hpml_jobs.study.manifest import ManifestEvent, ManifestLine, copies_of
from hpml_jobs.study.study import Study
from hpml_jobs.submit import arrays, packs
from hpml_jobs.submit.job_requests import JobKind, JobRequest
from hpml_jobs.submit.sbatch import (
    NoJobIdError,
    RefusedError,
    answer_of,
    check_folder,
    start_sbatch,
    write_script,
    writing,
)

WRITERS = 16
"""Files that are written at the same time: on a file system of the network each waits for it."""


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


def script(study: Study, cluster: Cluster, request: JobRequest) -> str:
    """Return the sbatch script of a request."""
    write = arrays.script if request.kind is JobKind.ARRAY else packs.script
    return write(study, cluster, request)


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
    path = write_script(study, script(study, cluster, request))
    is_array = request.kind is JobKind.ARRAY
    if is_array:
        arrays.write_pickle(study, request)
    reserve = _reserve(study, line)
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


def _reserve(study: Study, line: ManifestLine) -> Path:
    """Write a file of the size that the manifest needs after sbatch; it is removed then.

    Raises:
        HpmlError: the disk is full.
    """
    path = study.slurm / f"{line.batch}.reserve"
    with writing(path):
        write_whole(path, bytes(_RESERVE_BYTES + 2 * len(encode(line))))
    return path


_RESERVE_BYTES = 16_384


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
