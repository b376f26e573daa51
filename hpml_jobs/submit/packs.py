"""Shared allocations (packs and ladders): one script that runs each cell as a step of its own.

SLURM isolates the steps: each has its cell's share of the allocation and its time limit, and its
processes are gone before the next one starts.
"""

import shlex

from hpml_jobs.core.cluster import Cluster, sbatch_options
from hpml_jobs.job.run import OOM_CODE
from hpml_jobs.plan.plan import PlannedCell
from hpml_jobs.study.study import Study
from hpml_jobs.submit.arrays import python, setup
from hpml_jobs.submit.job_requests import JobKind, JobRequest
from hpml_jobs.submit.sbatch import header

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


def script(study: Study, cluster: Cluster, request: JobRequest) -> str:
    """Return the sbatch script of a pack or a ladder."""
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
