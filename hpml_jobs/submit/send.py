"""Submission of job requests to SLURM, with a manifest line before and after each sbatch call."""

import uuid
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.text import counted
from hpml_jobs.errors import HpmlError
from hpml_jobs.plan.plan import PlannedCell
from hpml_jobs.slurm.jobs import array_ids
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.manifest import ManifestEvent, ManifestLine
from hpml_jobs.study.study import Study
from hpml_jobs.submit import arrays, packs
from hpml_jobs.submit.job_requests import JobKind, JobRequest
from hpml_jobs.submit.sbatch import RefusedError, check_folder


class SentRequest(NamedTuple):
    """A job request that SLURM accepted; `jobs` are those of its cells, by slug."""

    request: JobRequest
    jobs: dict[str, str]

    def __str__(self) -> str:
        """For people, e.g. `job 101: 3 x 1 node x 4 rtx8000, 12 CPUs, 30 min`."""
        (job,) = array_ids(self.jobs.values())
        return f"job {job}: {self.request}"


def send(study: Study, cluster: Cluster, requests: list[JobRequest]) -> Iterator[SentRequest]:
    """Submit requests one by one; yield each as soon as SLURM accepted it.

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
        yield _send(study, cluster, request, submitted)
        submitted += len(request.cells)


def write_cells(study: Study, cells: Iterable[PlannedCell]) -> None:
    """Write cell.json of every cell, before any job can read it."""
    for planned in cells:
        path = study.cell(planned.cell.slug).cell_json
        try:
            write_whole(path, encode(planned.file))
        except OSError as error:
            raise HpmlError(f"{path} cannot be written: {error.strerror}") from error


def script(study: Study, cluster: Cluster, request: JobRequest) -> str:
    """Return the sbatch script of a request."""
    write = arrays.script if request.kind is JobKind.ARRAY else packs.script
    return write(study, cluster, request)


def _send(study: Study, cluster: Cluster, request: JobRequest, submitted: int) -> SentRequest:
    slugs = request.slugs
    line = ManifestLine(
        happening=ManifestEvent.SENDING,
        batch=uuid.uuid4().hex,
        cells=slugs,
        shape=str(request.shape),
        retry=request.is_retry,
        excluded=request.exclude,
    )
    study.append(line)  # if sbatch's answer is lost, this line stays open
    submit = arrays.submit if request.kind is JobKind.ARRAY else packs.submit
    try:
        jobs = tuple(submit(study, cluster, request))
    except RefusedError as error:
        message = str(error)
        study.append(msgspec.structs.replace(line, happening=ManifestEvent.REFUSED, words=message))
        raise RefusedError(
            f"sbatch refused {counted(len(request.cells), 'cell')} ({request.shape}): {message}; "
            f"submitted before it: {counted(submitted, 'cell')}, see {study.manifest}"
        ) from error
    study.append(msgspec.structs.replace(line, happening=ManifestEvent.SENT, jobs=jobs))
    return SentRequest(request, dict(zip(slugs, jobs, strict=True)))
