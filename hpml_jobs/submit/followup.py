"""The follow-up job: after all other jobs, it resubmits lost cells and writes the report."""

import shlex
import sys
import uuid
from collections.abc import Iterable

from hpml_jobs.core.cluster import GpuRequest, Rule
from hpml_jobs.errors import UsageError
from hpml_jobs.plan.plan import Plan
from hpml_jobs.slurm.jobs import array_ids
from hpml_jobs.study.manifest import ManifestEvent, ManifestLine
from hpml_jobs.submit.sbatch import header, sbatch

MINUTES = 15
MEMORY_GB = 4


def wants_followup(plan: Plan) -> bool:
    """Return whether a follow-up job comes after the cells."""
    return plan.collect_after or plan.retries > 0


def submit_followup(plan: Plan, jobs: Iterable[str]) -> str:
    """Submit the follow-up job and return its id; it starts when `jobs` have ended, failed or not.

    Raises:
        RefusedError: SLURM refused it.
    """
    job = sbatch(plan.study, script(plan, jobs))
    line = ManifestLine(
        happening=ManifestEvent.SENT, batch=uuid.uuid4().hex, cells=(), jobs=(job,), closing=True
    )
    plan.study.append(line)
    return job


def check_followup(plan: Plan) -> None:
    """Refuse a follow-up job that this cluster would not accept.

    Raises:
        UsageError: it needs a partition, and none without GPUs is known.
    """
    cluster = plan.cluster
    by_partition = cluster.gpu_request is GpuRequest.PARTITION
    needs_partition = by_partition or cluster.partition_rule is Rule.REQUIRED
    has_partition = cluster.cpu_partition or cluster.partition
    if wants_followup(plan) and needs_partition and not has_partition:
        raise UsageError(
            f"cluster={cluster.name} needs a partition for the job of collect_after: add "
            "cluster.cpu_partition=NAME, or leave collect_after and retries out"
        )


def script(plan: Plan, jobs: Iterable[str]) -> str:
    """Return a script of two commands (resubmit, report) that a user could also type."""
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
        "mem": f"{MEMORY_GB}G",
        "time": MINUTES,
        "output": f"{logs}.out",
        "error": f"{logs}.err",
    }
    program = [*cluster.python_command(sys.executable), "-m", "hpml_jobs"]
    arguments = [study.name, "--outputs", str(study.root.parent)]
    resubmit = [*program, "resubmit", *arguments, "--lost", "--retries", str(plan.retries)]
    lines = [*header(options), "", *cluster.setup]
    lines += [shlex.join(resubmit)] if plan.retries else []
    lines += [shlex.join([*program, "report", *arguments])]
    return "\n".join(lines) + "\n"
