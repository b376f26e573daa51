"""Job arrays through submitit: one sbatch call, one array task per cell."""

import contextlib
import io
import shlex
import sys
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.slurm.slurm import _make_sbatch_string

from hpml_jobs.core.cluster import Cluster, Isolate, Shape, sbatch_options
from hpml_jobs.errors import HpmlError
from hpml_jobs.job.run import run_cell
from hpml_jobs.study.study import Study
from hpml_jobs.submit.job_requests import JobRequest
from hpml_jobs.submit.sbatch import RefusedError, clean_environment, slurm_message


def job_name(study: Study) -> str:
    """Return the name of all jobs of a study: `singleton` serializes jobs by name."""
    return f"hpml-{study.name}"


def python(cluster: Cluster) -> str:
    """Return the shell command that starts the job's Python."""
    return shlex.join(cluster.python_command(sys.executable))


def setup(shape: Shape, cluster: Cluster) -> list[str]:
    """Return the shell lines that come before the job's Python."""
    lines = [*cluster.setup, "unset PYTHONPATH"] if cluster.container.image else [*cluster.setup]
    if shape.nodes > 1:
        # here, because scontrol is outside any container
        lines.append('export HPML_JOBS_HOSTS="$(scontrol show hostnames | tr "\\n" " ")"')
    return lines


def submit(study: Study, cluster: Cluster, request: JobRequest) -> list[str]:
    """Submit an array; return the job of each of its cells.

    Raises:
        RefusedError: SLURM refused it.
        HpmlError: sbatch's answer has no job id.
    """
    folders = [str(study.cell(slug).root) for slug in request.slugs]
    executor = submitit.SlurmExecutor(folder=study.slurm, python=python(cluster))
    executor.update_parameters(**_parameters(study, cluster, request))
    try:
        # submitit copies sbatch's messages to stderr; they are in our own error
        with clean_environment(), contextlib.redirect_stderr(io.StringIO()):
            jobs = executor.map_array(run_cell, folders)
    except FailedSubmissionError as error:
        message = slurm_message(str(error))
        raise HpmlError(f"{message}; check squeue --me before you submit again") from error
    except FailedJobError as error:
        raise RefusedError(slurm_message(str(error))) from error
    return [job.job_id for job in jobs]


def script(study: Study, cluster: Cluster, request: JobRequest) -> str:
    """Return the sbatch script of an array, as submitit writes it.

    submitit has no public dry run, and its executor refuses to exist where srun is missing. A test
    compares this text with the one that is submitted.
    """
    folder = shlex.quote(str(study.slurm))
    text = _make_sbatch_string(
        command=f"{python(cluster)} -u -m submitit.core._submit {folder}",
        folder=study.slurm,
        map_count=len(request.cells) if len(request.cells) > 1 else None,  # one is a plain job
        **_parameters(study, cluster, request),
    )
    return str(text)


def _parameters(study: Study, cluster: Cluster, request: JobRequest) -> dict[str, Any]:
    """Return submitit's parameters of a request.

    sbatch's options go into `additional_parameters`, which submitit writes as they are.
    """
    options = sbatch_options(request.shape, cluster)
    options |= {"exclude": ",".join(request.exclude) or None, "job-name": None}
    is_serial = cluster.isolate is Isolate.SERIAL
    return {
        "job_name": job_name(study),
        "nodes": options["nodes"],  # these two submitit reads itself
        "time": options["time"],
        "wckey": None,  # submitit's own default is refused on some clusters
        "additional_parameters": {
            name.replace("_", "-"): value for name, value in options.items() if value is not None
        },
        "array_parallelism": 1 if is_serial else cluster.array_parallelism,
        "setup": setup(request.shape, cluster) or None,
        "srun_args": [f"--cpus-per-task={request.shape.cpus_per_node}", "--kill-on-bad-exit=1"],
    }
