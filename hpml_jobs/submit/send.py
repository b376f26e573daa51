"""Cells to SLURM: batch by batch, a manifest line before and after each sbatch."""

import uuid

import msgspec

from hpml_jobs.core.text import counted
from hpml_jobs.errors import HpmlError
from hpml_jobs.plan.plan import Plan, PlannedCell
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.manifest import ManifestEvent, ManifestLine
from hpml_jobs.study.study import Study
from hpml_jobs.submit import arrays, packs
from hpml_jobs.submit.batches import Batch, Way, batches
from hpml_jobs.submit.sbatch import RefusedError, check_folder


class SbatchRefusedError(HpmlError):
    """sbatch said no; the message holds SLURM's words, `sent` the jobs of cells sent before."""

    def __init__(self, message: str, sent: dict[str, str]) -> None:
        super().__init__(message)
        self.sent = sent


def script(plan: Plan, batch: Batch) -> str:
    """The sbatch script that would be sent for a batch."""
    write = arrays.script if batch.way is Way.ARRAY else packs.script
    return write(plan, batch)


def write_cells(study: Study, cells: list[PlannedCell]) -> None:
    """cell.json of every cell, before any job can look for it."""
    for one in cells:
        path = study.cell(one.cell.slug).cell_json
        try:
            write_whole(path, encode(one.file))
        except OSError as fault:
            raise HpmlError(f"{path} cannot be written: {fault.strerror}") from fault


def send(plan: Plan, cells: list[PlannedCell]) -> dict[str, str]:
    """Send cells batch by batch; returns the job of each cell.

    Raises:
        SbatchRefusedError: SLURM refused; what was sent before is in the manifest.
    """
    if not cells:
        return {}
    check_folder(plan.study)
    write_cells(plan.study, cells)
    plan.study.keep_cluster(plan.cluster)
    jobs: dict[str, str] = {}
    for batch in batches(plan, cells):
        jobs |= _send_batch(plan, batch, sent=jobs)
    return jobs


def _send_batch(plan: Plan, batch: Batch, sent: dict[str, str]) -> dict[str, str]:
    study = plan.study
    slugs = tuple(one.cell.slug for one in batch.cells)
    line = ManifestLine(
        happening=ManifestEvent.SENDING,
        batch=uuid.uuid4().hex,
        cells=slugs,
        shape=str(batch.shape),
        retry=plan.retry,
        excluded=plan.exclude,
    )
    study.append(line)  # where sbatch's answer is lost, this line stays open
    try:
        go = arrays.send_array if batch.way is Way.ARRAY else packs.send_pack
        ids = tuple(go(plan, batch))
    except RefusedError as fault:
        words = str(fault)
        study.append(msgspec.structs.replace(line, happening=ManifestEvent.REFUSED, words=words))
        raise SbatchRefusedError(
            f"sbatch refused {counted(len(slugs), 'cell')} ({batch.shape}): {words}; "
            f"{len(sent)} cells were sent before and are in {study.manifest}",
            dict(sent),
        ) from fault
    study.append(msgspec.structs.replace(line, happening=ManifestEvent.SENT, jobs=ids))
    return dict(zip(slugs, ids, strict=True))
