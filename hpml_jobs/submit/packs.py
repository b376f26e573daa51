"""Cells that share an allocation: one script, a step of their own for each, one after another.

A step is SLURM's own wall between two cells: it has its cell's share of the allocation and its time
limit, and what is left of it is cleared away before the next begins.
"""

import shlex

from hpml_jobs.core.cluster import sbatch_options
from hpml_jobs.job.run import OOM_CODE
from hpml_jobs.plan.plan import Plan, PlannedCell
from hpml_jobs.submit.arrays import job_name, python, setup
from hpml_jobs.submit.batches import Batch, Way
from hpml_jobs.submit.sbatch import header, sbatch

_OF_A_STEP = ("nodes", "cpus-per-task", "gres", "mem", "time")

_STEP = """\
cell() {{
  name=$1; shift
  srun --ntasks-per-node=1 --kill-on-bad-exit=1 --open-mode=append --job-name="$name" \\
    --output={logs}/%j_"$name"_log.out --error={logs}/%j_"$name"_log.err "$@" \\
    {python} -u -m hpml_jobs.job {cells}/"$name"
  after $?
}}"""

_AFTER = {
    Way.PACK: "after() { [ $1 -eq 0 ] || failed=1; }  # one cell's fault is not the next one's",
    Way.LADDER: f"""\
after() {{  # what does not fit ends the ladder well, anything else ends it too
  [ $1 -ne {OOM_CODE} ] || exit 0
  [ $1 -eq 0 ] || exit 1
}}""",
}


def send_pack(plan: Plan, batch: Batch) -> list[str]:
    """Send a pack or a ladder; the job of each of its cells, which is one and the same.

    Raises:
        RefusedError: SLURM refused it.
        HpmlError: sbatch did not say what became of it.
    """
    return [sbatch(plan.study, script(plan, batch))] * len(batch.cells)


def script(plan: Plan, batch: Batch) -> str:
    """The sbatch script of a pack or a ladder."""
    study, cluster = plan.study, plan.cluster
    log = study.slurm / f"%j_{batch.way.value}_log"
    options = sbatch_options(batch.shape, cluster) | {
        "job-name": job_name(study),
        "output": f"{log}.out",
        "error": f"{log}.err",
        "open-mode": "append",
        "exclude": ",".join(plan.exclude) or None,
    }
    step = _STEP.format(
        logs=shlex.quote(str(study.slurm)),
        cells=shlex.quote(str(study.cells_folder)),
        python=python(cluster),
    )
    lines = [
        *header(options),
        "",
        *setup(batch.shape, cluster),
        "trap 'exit 143' TERM  # the job is to end: no further cell",
        "failed=0",
        _AFTER[batch.way],
        step,
        *(_cell(plan, one) for one in batch.cells),
        "exit $failed",
    ]
    return "\n".join(lines) + "\n"


def _cell(plan: Plan, one: PlannedCell) -> str:
    """One cell: its name, and its share of the allocation."""
    asked = sbatch_options(one.shape, plan.cluster) | {"ntasks": one.shape.nodes}
    share = [f"--{name}={asked[name]}" for name in (*_OF_A_STEP, "ntasks") if name in asked]
    return shlex.join(["cell", one.cell.slug, *share])
