"""Other jobs on the nodes of the surrounding job."""

import os

from hpml_jobs.slurm.commands import ask_slurm

ASK_S = 5.0
"""A job does not wait longer for squeue."""


def neighbour_jobs() -> dict[str, str] | None:
    """Return the users of other running jobs on this job's nodes, by job id.

    None outside a job and where squeue does not answer: nothing depends on it.
    """
    job, nodes = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_NODELIST")
    if not (job and nodes):
        return None
    words = ("-h", "-t", "RUNNING,SUSPENDED", "-w", nodes, "-o", "%A|%u")
    answer = ask_slurm("squeue", *words, timeout_s=ASK_S)
    if answer.code != 0:
        return None
    pairs = (line.strip().partition("|") for line in answer.text.splitlines())
    return {other: user for other, _, user in pairs if other.isdigit() and other != job}
