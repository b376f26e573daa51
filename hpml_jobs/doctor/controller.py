"""Checks of SLURM: its commands, controller, accounting and nodes."""

import shutil
import time
from collections import Counter

from hpml_jobs.core.answers import Finding, ok, problem, warning
from hpml_jobs.core.text import counted, few
from hpml_jobs.doctor.before_queue import ASK_SUPPORT, cluster_name
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.commands import ask_slurm

COMMANDS = ("sbatch", "srun", "squeue", "scontrol", "sinfo", "sacct", "scancel")


def check_commands() -> Finding:
    """Check that SLURM's commands are on PATH."""
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if {*missing} - {"sacct"}:
        return problem(
            "commands",
            f"{', '.join(missing)} not on PATH",
            "load the cluster's SLURM, e.g. module load slurm",
        )
    if missing:
        return warning(
            "commands",
            "sacct is not on PATH",
            "add sacct to PATH; without it, states come from squeue and the files of jobs",
        )
    version = ask_slurm("sbatch", "--version").text.strip() or "version not reported"
    return ok("commands", f"{', '.join(COMMANDS)}: {version}")


def check_controller() -> Finding:
    """Check that the controller answers."""
    start = time.monotonic()
    answer = ask_slurm("scontrol", "ping")
    duration = f"{time.monotonic() - start:.1f} s"
    if "is UP" in answer.text:
        return ok("controller", f"cluster {cluster_name()} answers in {duration}")
    text = " ".join((answer.text or answer.complaint).split()) or "no output"
    return problem("controller", f"scontrol ping: {text} ({duration})", ASK_SUPPORT)


def check_accounting() -> Finding:
    """Check that sacct answers: it knows the states of jobs that have left the queue."""
    answer = ask_slurm("sacct", "-X", "-P", "-n", "-o", "JobID", "-j", "1")
    if answer.code == 0:
        return ok("accounting", "sacct answers")
    if "disabled" in answer.complaint:
        return warning(
            "accounting",
            "accounting is disabled on this cluster",
            "nothing to do: states of finished jobs come from squeue and the files of jobs",
        )
    return warning("accounting", f"sacct: {answer.complaint}", ASK_SUPPORT)


def check_nodes() -> Finding:
    """Report the nodes and their partitions, and which SLURM does not use with its reason."""
    inventory = commands.inventory()
    if not inventory:
        answer = ask_slurm("sinfo", "-h")
        return problem(
            "nodes", f"sinfo lists no nodes: {answer.complaint or 'no output'}"
        )
    sizes = Counter((node.gpu_type, node.gpus) for node in inventory)
    texts = []
    for (gpu_type, gpus), count in sizes.items():
        of_node = f"x {gpus} {gpu_type or 'GPU'}" if gpus else "without GPUs"
        texts.append(f"{counted(count, 'node')} {of_node}")
    partitions = sorted(frozenset().union(*(node.partitions for node in inventory)))
    observed = f"{', '.join(texts)}; partitions {', '.join(partitions)}"
    reasons = ask_slurm("sinfo", "-h", "-R", "-o", "%D (%N: %E)").text.splitlines()
    if reasons:
        observed += f"; down or drained: {few(reasons)}"
    return ok("nodes", observed)
