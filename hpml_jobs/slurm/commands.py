"""Questions to SLURM: run its commands with a time limit, and cache the answers."""

import functools
import os
import re
import shutil
import subprocess
from typing import NamedTuple

from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm.nodes import SINFO_FORMAT, Node, parse_limits, parse_sinfo, parse_time_limits

ASK_TIMEOUT_S = 10


class Answer(NamedTuple):
    """What a SLURM command said; `complaint` is the first line of its own words, or ours.

    `absent`: there is no such command on PATH, so asking again later is of no use.
    """

    code: int
    text: str
    complaint: str
    absent: bool = False


def ask_slurm(*command: str) -> Answer:
    """Run a SLURM command, bounded in time, without the person's own formats in its way.

    It prints moments as seconds since 1970.
    """
    formats = re.compile(r"(SQUEUE|SINFO|SACCT)_")
    environment = {name: v for name, v in os.environ.items() if not formats.match(name)}
    environment["SLURM_TIME_FORMAT"] = "%s"
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            env=environment,
            check=False,
        )
    except FileNotFoundError:
        return Answer(1, "", "not on PATH", absent=True)
    except subprocess.TimeoutExpired:
        return Answer(1, "", f"no answer within {ASK_TIMEOUT_S} s")
    except OSError as fault:
        return Answer(1, "", str(fault))
    return Answer(done.returncode, done.stdout, (done.stderr.strip().splitlines() or [""])[0])


def _told(*command: str) -> str:
    """What a SLURM command prints; nothing where it fails."""
    answer = ask_slurm(*command)
    return answer.text if answer.code == 0 else ""


def has_sbatch() -> bool:
    """Whether jobs can be sent from here."""
    return shutil.which("sbatch") is not None


@functools.cache
def limits() -> dict[str, str]:
    """`scontrol show config`, empty where it does not answer."""
    return parse_limits(_told("scontrol", "show", "config"))


@functools.cache
def inventory() -> tuple[Node, ...]:
    """The cluster's nodes, empty where sinfo does not answer."""
    return tuple(parse_sinfo(_told("sinfo", "-h", "-N", "-o", SINFO_FORMAT)))


@functools.cache
def partition_minutes() -> dict[str, float]:
    """The longest time limit of each partition, in minutes; those without a limit are not in it."""
    return parse_time_limits(_told("sinfo", "-h", "-o", "%P|%l"))


def hosts_of_job() -> list[str]:
    """The hosts of the job this runs in, in SLURM's order; asked outside any container.

    Raises:
        HpmlError: SLURM does not say; a multi-node cell never falls back to localhost.
    """
    listed = os.environ.get("HPML_JOBS_HOSTS", "").split()
    if not listed and os.environ.get("SLURM_JOB_NODELIST"):
        text = _told("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"])
        listed = text.split()
    if not listed:
        raise HpmlError("the job's hosts are unknown: scontrol show hostnames gave nothing")
    if not all(re.fullmatch(r"[A-Za-z0-9._-]+", host) for host in listed):
        raise HpmlError(f"these are not host names: {listed}")
    return listed
