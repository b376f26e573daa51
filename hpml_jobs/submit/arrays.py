"""Job arrays of submitit: one sbatch call, one array task per cell."""

import hashlib
import pickle
import shlex
import sys
from pathlib import Path
from typing import Any

from submitit.core.utils import DelayedSubmission
from submitit.slurm.slurm import _make_sbatch_string

from hpml_jobs.core.cluster import Cluster, Isolate, Shape, sbatch_options
from hpml_jobs.job.run import run_task
from hpml_jobs.study.files import write_whole
from hpml_jobs.study.study import Study
from hpml_jobs.submit.job_requests import JobRequest
from hpml_jobs.submit.sbatch import writing


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


def _refuse_others(study: Study) -> str:
    """Return the line that ends a job whose pickle another user could have exchanged.

    In a folder that the group may write, `slurm/` can be replaced after its submission.
    """
    folder = shlex.quote(str(study.slurm))
    said = shlex.quote(f"hpml-jobs: {study.slurm} is not yours, or other users can write there")
    owned = f'find {folder} -maxdepth 0 -uid "$(id -u)" ! -perm /022'
    return f'[ -n "$({owned})" ] || {{ echo {said} >&2; exit 1; }}'


def write_pickle(study: Study, request: JobRequest) -> None:
    """Write what the tasks of an array run: one file, which is the same for the same cells.

    Raises:
        HpmlError: it cannot be written.
    """
    call = DelayedSubmission(run_task, str(study.cells_folder), request.slugs)
    call.set_timeout(request.shape.minutes, max_num_timeout=0)  # SLURM requeues, submitit never
    path = _pickle(study, request)
    with writing(path):
        write_whole(path, pickle.dumps(call))


def _pickle(study: Study, request: JobRequest) -> Path:
    name = hashlib.sha256("\n".join(request.slugs).encode()).hexdigest()[:12]
    return study.slurm / f"cells-{name}.pkl"


def _link_pickle(study: Study, request: JobRequest) -> str:
    """Return the line of a job that makes the file which submitit reads for its task."""
    folder, name = shlex.quote(str(study.slurm)), _pickle(study, request).name
    job = '"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"'
    return f"ln -sf {name} {folder}/{job}_submitted.pkl || exit 1"


def script(study: Study, cluster: Cluster, request: JobRequest) -> str:
    """Return the sbatch script of an array, as submitit writes it.

    submitit has no public dry run, and its executor refuses to exist where srun is missing.
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
        "job_name": study.job_name,
        "nodes": options["nodes"],  # these two submitit reads itself
        "time": options["time"],
        "wckey": None,  # submitit's own default is refused on some clusters
        "additional_parameters": {
            name.replace("_", "-"): value for name, value in options.items() if value is not None
        },
        "array_parallelism": 1 if is_serial else cluster.array_parallelism,
        "setup": [
            _refuse_others(study),
            _link_pickle(study, request),
            *setup(request.shape, cluster),
        ],
        "srun_args": [f"--cpus-per-task={request.shape.cpus_per_node}", "--kill-on-bad-exit=1"],
    }
