"""An array of cells through submitit: one sbatch, a task per cell."""

import contextlib
import io
import shlex
import sys
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.slurm.slurm import _get_default_parameters, _make_sbatch_string

from hpml_jobs.core.cluster import Cluster, Isolate, Shape, sbatch_options
from hpml_jobs.errors import HpmlError
from hpml_jobs.job.run import run_cell
from hpml_jobs.plan.plan import Plan
from hpml_jobs.study.study import Study
from hpml_jobs.submit.batches import Batch
from hpml_jobs.submit.sbatch import RefusedError, clean_environment, slurm_words


def job_name(study: Study) -> str:
    """One name for all jobs of a study: `singleton` serialises by it."""
    return f"hpml-{study.name}"


def python(cluster: Cluster) -> str:
    """The shell words that start the job's Python."""
    return shlex.join(cluster.python_command(sys.executable))


def setup(shape: Shape, cluster: Cluster) -> list[str]:
    """Shell lines before the job's Python."""
    lines = [*cluster.setup, "unset PYTHONPATH"] if cluster.container.image else [*cluster.setup]
    if shape.nodes > 1:
        # asked here, outside any container, where scontrol is
        lines.append('export HPML_JOBS_HOSTS="$(scontrol show hostnames | tr "\\n" " ")"')
    return lines


def send_array(plan: Plan, batch: Batch) -> list[str]:
    """Send an array; the job of each of its cells.

    Raises:
        RefusedError: SLURM refused it.
        HpmlError: sbatch did not say what became of it.
    """
    folders = [str(plan.study.cell(one.cell.slug).root) for one in batch.cells]
    made = submitit.SlurmExecutor(folder=plan.study.slurm, python=python(plan.cluster))
    made.update_parameters(**_parameters(plan, batch.shape))
    try:
        # submitit copies sbatch's complaints to stderr; they are in our own line
        with clean_environment(), contextlib.redirect_stderr(io.StringIO()):
            jobs = made.map_array(run_cell, folders)
    except FailedSubmissionError as fault:
        words = slurm_words(str(fault))
        raise HpmlError(f"{words}; look with squeue --me before sending again") from fault
    except FailedJobError as fault:
        raise RefusedError(slurm_words(str(fault))) from fault
    return [job.job_id for job in jobs]


def script(plan: Plan, batch: Batch) -> str:
    """The sbatch script that would be sent for an array."""
    folder = shlex.quote(str(plan.study.slurm))
    text = _make_sbatch_string(  # submitit has no public dry run, and its executor needs srun here
        command=f"{python(plan.cluster)} -u -m submitit.core._submit {folder}",
        folder=plan.study.slurm,
        map_count=len(batch.cells) if len(batch.cells) > 1 else None,  # one is a plain job
        **_parameters(plan, batch.shape),
    )
    return str(text)


def _parameters(plan: Plan, shape: Shape) -> dict[str, Any]:
    """The shape as submitit wants it: its own names where it has them, sbatch's for the rest."""
    cluster = plan.cluster
    asked = sbatch_options(shape, cluster) | {"exclude": ",".join(plan.exclude) or None}
    options = {name.replace("-", "_"): v for name, v in asked.items() if v is not None}
    known = set(_get_default_parameters())
    serial = cluster.isolate is Isolate.SERIAL
    return {
        **{name: value for name, value in options.items() if name in known},
        "wckey": options.get("wckey"),  # submitit's own default is refused on some clusters
        "job_name": job_name(plan.study),
        "array_parallelism": 1 if serial else cluster.array_parallelism,
        "setup": setup(shape, cluster) or None,
        "srun_args": [f"--cpus-per-task={shape.cpus_per_node}", "--kill-on-bad-exit=1"],
        "additional_parameters": {
            name.replace("_", "-"): value for name, value in options.items() if name not in known
        },
    }
