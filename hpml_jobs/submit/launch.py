"""Cells to SLURM: one submitit array per shape, a manifest line before and after each sbatch."""

import contextlib
import io
import os
import random
import shlex
import sys
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.slurm.slurm import _get_default_parameters, _make_sbatch_string

from hpml_jobs.cluster import Cluster, Isolate, Shape, sbatch_options
from hpml_jobs.errors import HpmlError
from hpml_jobs.files import encode, write_whole
from hpml_jobs.slurm import scrubbed
from hpml_jobs.study import Happening, ManifestLine, Study
from hpml_jobs.submit import machine
from hpml_jobs.submit.cells import Ordered, Plan
from hpml_jobs.submit.job import run_cell
from hpml_jobs.wording import counted

DEFAULT_MAX_ARRAY_SIZE = 1001
"""SLURM's own default of MaxArraySize."""


class Array(NamedTuple):
    """Cells of one shape that go out with one sbatch."""

    shape: Shape
    cells: list[Ordered]


class SbatchRefusedError(HpmlError):
    """sbatch said no; the message holds SLURM's words, `sent` the jobs of cells sent before."""

    def __init__(self, message: str, sent: dict[str, str]) -> None:
        super().__init__(message)
        self.sent = sent


def arrays(cells: list[Ordered], cluster: Cluster) -> list[Array]:
    """Group cells by shape, in seeded random order inside a shape, split at MaxArraySize."""
    shapes: dict[bytes, list[Ordered]] = {}
    for one in cells:
        shapes.setdefault(msgspec.json.encode(one.shape), []).append(one)
    size = cluster.max_array_size or int(
        machine.limits().get("MaxArraySize") or DEFAULT_MAX_ARRAY_SIZE
    )
    found = []
    for group in shapes.values():
        order = shuffled(group)
        chunks = (order[start : start + size] for start in range(0, len(group), size))
        found += [Array(chunk[0].shape, chunk) for chunk in chunks]
    return found


def shuffled(cells: list[Ordered]) -> list[Ordered]:
    """Cells in random order, the same for the same cells and seed."""
    return random.Random(cells[0].cell.seed).sample(cells, len(cells))  # noqa: S311  (an order)


def job_name(study: Study) -> str:
    """One name for all arrays of a study: `singleton` serialises by it."""
    return f"hpml-{study.name}"


def parameters(shape: Shape, cluster: Cluster, study: Study) -> dict[str, Any]:
    """The shape as submitit wants it: its own names where it has them, sbatch's for the rest."""
    options = {name.replace("-", "_"): v for name, v in sbatch_options(shape, cluster).items()}
    known = set(_get_default_parameters())
    cpus = shape.cpus_per_node
    serial = cluster.isolate is Isolate.SERIAL
    setup = [*cluster.setup, "unset PYTHONPATH"] if cluster.container.image else [*cluster.setup]
    if shape.nodes > 1:
        # asked here, outside any container, where scontrol is
        setup.append('export HPML_JOBS_HOSTS="$(scontrol show hostnames | tr "\\n" " ")"')
    return {
        **{name: value for name, value in options.items() if name in known},
        "wckey": options.get("wckey"),  # submitit's own default is refused on some clusters
        "job_name": job_name(study),
        "array_parallelism": 1 if serial else cluster.array_parallelism,
        "setup": setup or None,
        "srun_args": [f"--cpus-per-task={cpus}", "--kill-on-bad-exit=1"],
        "additional_parameters": {
            name.replace("_", "-"): value for name, value in options.items() if name not in known
        },
    }


def python(plan: Plan) -> str:
    """The shell words that start the job's Python."""
    return shlex.join(plan.cluster.python_command(sys.executable))


def executor(plan: Plan, shape: Shape) -> submitit.SlurmExecutor:
    """submitit's executor for one shape; always SLURM, never its silent local fallback."""
    made = submitit.SlurmExecutor(folder=plan.study.slurm, python=python(plan))
    made.update_parameters(**parameters(shape, plan.cluster, plan.study))
    return made


def script(plan: Plan, array: Array) -> str:
    """The sbatch script that would be sent for an array."""
    text = _make_sbatch_string(  # submitit has no public dry run, and its executor needs srun here
        command=f"{python(plan)} -u -m submitit.core._submit {shlex.quote(str(plan.study.slurm))}",
        folder=plan.study.slurm,
        map_count=len(array.cells) if len(array.cells) > 1 else None,  # one is a plain job
        **parameters(array.shape, plan.cluster, plan.study),
    )
    return str(text)


@contextlib.contextmanager
def clean_environment() -> Iterator[None]:
    """sbatch exports our environment into the job: nothing of a surrounding job may be in it."""
    before = dict(os.environ)
    clean = scrubbed(before, inside_job="SLURM_JOB_ID" in before)
    os.environ.clear()
    os.environ.update(clean)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def write_cells(study: Study, cells: list[Ordered]) -> None:
    """cell.json of every cell, before any job can look for it."""
    for one in cells:
        path = study.cell(one.cell.slug).cell_json
        try:
            write_whole(path, encode(one.file))
        except OSError as fault:
            raise HpmlError(f"{path} cannot be written: {fault.strerror}") from fault


def send(plan: Plan, cells: list[Ordered]) -> dict[str, str]:
    """Send cells as arrays; returns the job of each cell.

    Raises:
        SbatchRefusedError: SLURM refused; what was sent before is in the manifest.
    """
    if not cells:
        return {}
    if "%" in str(plan.study.slurm) or "\n" in str(plan.study.slurm):
        raise HpmlError(f"{plan.study.root}: SLURM cannot write logs to a path with % or newline")
    write_cells(plan.study, cells)
    jobs: dict[str, str] = {}
    for array in arrays(cells, plan.cluster):
        jobs |= _send_array(plan, array, sent=jobs)
    return jobs


def _send_array(plan: Plan, array: Array, sent: dict[str, str]) -> dict[str, str]:
    study = plan.study
    slugs = tuple(one.cell.slug for one in array.cells)
    line = ManifestLine(
        happening=Happening.SENDING, batch=uuid.uuid4().hex, cells=slugs, shape=str(array.shape)
    )
    study.append(line)
    folders = [str(study.cell(slug).root) for slug in slugs]
    try:
        # submitit copies sbatch's complaints to stderr; they are in our own line
        with clean_environment(), contextlib.redirect_stderr(io.StringIO()):
            made = executor(plan, array.shape).map_array(run_cell, folders)
    except FailedSubmissionError as fault:  # sent, perhaps: the line before it stays open
        raise HpmlError(
            f"{_slurm_words(fault)}; look with squeue --me before sending again"
        ) from fault
    except FailedJobError as fault:
        words = _slurm_words(fault)
        refused = msgspec.structs.replace(line, happening=Happening.REFUSED, words=words)
        study.append(refused)
        raise SbatchRefusedError(
            f"sbatch refused {counted(len(slugs), 'cell')} ({array.shape}): {words}; "
            f"{len(sent)} cells were sent before and are in {study.manifest}",
            dict(sent),
        ) from fault
    ids = tuple(job.job_id for job in made)
    study.append(msgspec.structs.replace(line, happening=Happening.SENT, jobs=ids))
    return dict(zip(slugs, ids, strict=True))


def _slurm_words(fault: Exception) -> str:
    """SLURM's own words, without Python's."""
    lines = [line.strip() for line in str(fault).splitlines()]
    said = [line.removeprefix("sbatch: ") for line in lines if line.startswith("sbatch: ")]
    return "; ".join(said) or " ".join(line for line in lines if line)
