"""The text of every sbatch script: of an array, of a shared allocation, of the follow-up job."""

import pickle
import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from submitit.core.utils import DelayedSubmission
from submitit.slurm.slurm import _make_sbatch_string

from hpml_jobs.core.cluster import Cluster, Isolate, Shape, sbatch_options
from hpml_jobs.job.run import OOM_CODE, run_task
from hpml_jobs.plan.cells import Plan, PlannedCell
from hpml_jobs.slurm.jobs import array_ids
from hpml_jobs.study.study import Study
from hpml_jobs.submit.job_requests import JobKind, JobRequest

FOLLOWUP_MINUTES = 15
FOLLOWUP_MEMORY_GB = 4


def script(study: Study, cluster: Cluster, request: JobRequest) -> str:
    """Return the sbatch script of a request."""
    write = _array_script if request.kind is JobKind.ARRAY else _shared_script
    return write(study, cluster, request)


def _array_script(study: Study, cluster: Cluster, request: JobRequest) -> str:
    """Return the sbatch script of an array, one task per cell, as submitit writes it.

    submitit has no public dry run, and its executor refuses to exist where srun is missing.
    sbatch's options go into `additional_parameters`, which submitit writes as they are.
    """
    folder = shlex.quote(str(study.slurm))
    # In a folder that the group may write, slurm/ and its pickle can be exchanged after submission.
    said = shlex.quote(f"hpml-jobs: {study.slurm} is not yours, or other users can write there")
    owned = f'find {folder} -maxdepth 0 -uid "$(id -u)" ! -perm /022'
    refuse_others = f'[ -n "$({owned})" ] || {{ echo {said} >&2; exit 1; }}'
    job = '"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"'
    link_pickle = f"ln -sf {request.pickle_name} {folder}/{job}_submitted.pkl || exit 1"
    options = sbatch_options(request.shape, cluster)
    options |= {"exclude": ",".join(request.exclude) or None, "job-name": None}
    named: dict[str, Any] = {
        "nodes": options["nodes"],  # these two submitit reads itself
        "time": options["time"],
        "wckey": None,  # submitit's own default is refused on some clusters
    }
    is_serial = cluster.isolate is Isolate.SERIAL
    text = _make_sbatch_string(
        command=f"{python(cluster)} -u -m submitit.core._submit {folder}",
        folder=study.slurm,
        map_count=len(request.cells) if len(request.cells) > 1 else None,  # one is a plain job
        job_name=study.job_name,
        additional_parameters={name: value for name, value in options.items() if value is not None},
        array_parallelism=1 if is_serial else cluster.array_parallelism,
        setup=[refuse_others, link_pickle, *setup(request.shape, cluster)],
        srun_args=[f"--cpus-per-task={request.shape.cpus_per_node}", "--kill-on-bad-exit=1"],
        **named,
    )
    return str(text)


def pickled(study: Study, request: JobRequest) -> bytes:
    """Return what the tasks of an array run: it is the same for the same cells."""
    call = DelayedSubmission(run_task, str(study.cells_folder), request.slugs)
    call.set_timeout(request.shape.minutes, max_num_timeout=0)  # SLURM requeues, submitit never
    return pickle.dumps(call)


_STEP_OPTIONS = ("nodes", "cpus-per-task", "gres", "mem", "time", "ntasks")

_STEP = """\
cell() {{
  name=$1; shift
  for attempt in 1 2 3 4 5 6; do
    srun --ntasks-per-node=1 --kill-on-bad-exit=1 --open-mode=append --job-name="$name" \\
      --output={logs}/%j_"$name"_log.out --error={logs}/%j_"$name"_log.err "$@" \\
      {python} -u -m hpml_jobs.job {cells}/"$name"
    code=$?
    # Without a log the step was not created: the memory of the step before was not free yet.
    [ $code -eq 0 ] || [ -e {logs}/"$SLURM_JOB_ID"_"$name"_log.out ] && break
    sleep 10
  done
  after $code
}}"""

_AFTER = {
    JobKind.PACK: "after() { [ $1 -eq 0 ] || failed=1; }  # a failed cell does not stop the others",
    JobKind.LADDER: f"""\
after() {{  # out of memory ends the ladder with success, any other failure ends it as failed
  [ $1 -ne {OOM_CODE} ] || exit 0
  [ $1 -eq 0 ] || exit 1
}}""",
}


def _shared_script(study: Study, cluster: Cluster, request: JobRequest) -> str:
    """Return the sbatch script of a pack or a ladder: each cell is a step of its own.

    SLURM isolates the steps: each has its cell's share of the allocation and its time limit, and
    its processes are gone before the next one starts.
    """
    log = study.slurm / f"%j_{request.kind.value}_log"
    options = sbatch_options(request.shape, cluster) | {
        "job-name": study.job_name,
        "output": f"{log}.out",
        "error": f"{log}.err",
        "open-mode": "append",
        "exclude": ",".join(request.exclude) or None,
    }
    step = _STEP.format(
        logs=shlex.quote(str(study.slurm)),
        cells=shlex.quote(str(study.cells_folder)),
        python=python(cluster),
    )
    lines = [
        *header(options),
        "",
        *setup(request.shape, cluster),
        "trap 'exit 143' TERM  # the job is ending: start no further cell",
        "failed=0",
        _AFTER[request.kind],
        step,
        *(_step(cluster, planned) for planned in request.cells),
        "exit $failed",
    ]
    return "\n".join(lines) + "\n"


def _step(cluster: Cluster, planned: PlannedCell) -> str:
    """Return the line that runs one cell: its name, and its share of the allocation."""
    options = sbatch_options(planned.shape, cluster) | {"ntasks": planned.shape.nodes}
    share = [f"--{name}={options[name]}" for name in _STEP_OPTIONS if name in options]
    return shlex.join(["cell", planned.slug, *share])


def followup_script(plan: Plan, jobs: Iterable[str]) -> str:
    """Return the follow-up job's script: commands that a user could also type."""
    cluster, study = plan.cluster, plan.study
    logs = study.slurm / "%j_closing_log"
    options = {
        "job-name": study.closing_name,
        "dependency": f"afterany:{':'.join(array_ids(jobs))}",
        "kill-on-invalid-dep": "yes",
        "partition": cluster.cpu_partition or cluster.partition,
        "account": cluster.account,
        "qos": cluster.qos,
        "wckey": cluster.wckey,
        "nodes": 1,
        "ntasks": 1,
        "cpus-per-task": 1,
        "mem": f"{FOLLOWUP_MEMORY_GB}G",
        "time": FOLLOWUP_MINUTES,
        "output": f"{logs}.out",
        "error": f"{logs}.err",
    }
    program = [*cluster.python_command(sys.executable), "-m", "hpml_jobs"]
    arguments = [study.name, "--outputs", str(study.root.parent)]
    resubmit = [*program, "resubmit", *arguments, "--lost", "--retries", str(plan.retries)]
    lines = [*header(options), "", *cluster.setup]
    lines += [shlex.join(resubmit)] if plan.retries else []
    lines += [shlex.join([*program, *(plan.then or ("report", *arguments))])]
    return "\n".join(lines) + "\n"


def header(options: Mapping[str, Any]) -> list[str]:
    """Return the first lines of a script, one per sbatch option; None and False are left out."""
    lines = ["#!/bin/bash"]
    for name, value in options.items():
        if value is True:
            lines.append(f"#SBATCH --{name}")
        elif value is not None and value is not False:
            lines.append(f"#SBATCH --{name}={shlex.quote(str(value))}")
    return lines


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
