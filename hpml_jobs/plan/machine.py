"""What this machine is: whether SLURM is here, which cluster it is, what its nodes hold."""

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.core.cluster import Cluster, Shape, sbatch_options
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.slurm.jobs import span_s
from hpml_jobs.slurm.states import SINFO_FORMAT, Node, parse_limits, parse_sinfo

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


def check_can_send(cluster: str) -> None:
    """Refuse a cluster's profile on a machine from which no job can be sent."""
    missing = [command for command in ("sbatch", "srun") if shutil.which(command) is None]
    if missing:
        raise UsageError(
            f"cluster={cluster}: {' and '.join(missing)} not on PATH; send from a login node of "
            "the cluster (here hpml-jobs plan shows what would be sent, cluster=local computes)"
        )


def cluster_sign() -> str | None:
    """What says that this machine belongs to a cluster, if anything does."""
    if "SLURM_CONF" in os.environ:
        return "SLURM_CONF"
    places = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
    return next((place for place in places if Path(place).exists()), None)


def refuse_login_node() -> None:
    """Refuse to train on a machine that belongs to a cluster but cannot send jobs."""
    sign = cluster_sign()
    if sign and "SLURM_JOB_ID" not in os.environ:  # inside an allocation, computing is right
        raise UsageError(
            f"sbatch is not on PATH, yet {sign} says that this machine belongs to a cluster: load "
            "the cluster's SLURM (module load slurm), or say cluster=local to compute right here"
        )


@functools.cache
def limits() -> dict[str, str]:
    """`scontrol show config`, empty where it does not answer."""
    return parse_limits(_told("scontrol", "show", "config"))


@functools.cache
def inventory() -> tuple[Node, ...]:
    """The cluster's nodes, empty where sinfo does not answer."""
    return tuple(parse_sinfo(_told("sinfo", "-h", "-N", "-o", SINFO_FORMAT)))


def parse_time_limits(text: str) -> dict[str, float]:
    """Minutes that each partition gives at most, by `sinfo -h -o '%P|%l'`; the default's as "" too.

    >>> parse_time_limits("main*|1:00:00\\nlong|2-00:00:00\\nfree|infinite\\n")
    {'main': 60.0, '': 60.0, 'long': 2880.0}
    """
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, limit = line.strip().partition("|")
        seconds = span_s(limit)
        if seconds is not None:
            found[name.rstrip("*")] = seconds / 60
            found |= {"": seconds / 60} if name.endswith("*") else {}
    return found


@functools.cache
def partition_minutes() -> dict[str, float]:
    """The longest time limit of each partition, in minutes; those without a limit are not in it."""
    return parse_time_limits(_told("sinfo", "-h", "-o", "%P|%l"))


def longest_minutes(shape: Shape, cluster: Cluster) -> float | None:
    """The longest time limit that a shape may have here; None where nothing limits it.

    sbatch takes a longer one, and the job waits for ever.
    """
    partition = sbatch_options(shape, cluster).get("partition") or ""
    limits = (cluster.max_minutes, partition_minutes().get(str(partition)))
    return min((limit for limit in limits if limit is not None), default=None)


def detect_cluster(profiles: dict[str, tuple[str, ...]]) -> tuple[str, str]:
    """The profile of this machine, and the sentence that says why.

    `profiles` maps a profile to the ClusterNames it is known as.
    """
    if not has_sbatch():
        refuse_login_node()
        return "local", "no sbatch here: the cells run on this machine (cluster=local)"
    if not limits() and not cluster_sign():
        return "local", "sbatch is here, but no cluster behind it: cluster=local"
    name = limits().get("ClusterName", "")
    for profile, known_as in profiles.items():
        if name.lower() in known_as:
            return profile, f"SLURM's ClusterName is {name}: cluster={profile}"
    return "slurm", f"SLURM's ClusterName is {name or 'not told'}: cluster=slurm (generic)"


@functools.cache
def local_gpus() -> tuple[str, ...]:
    """Names of this machine's NVIDIA GPUs, without torch."""
    import pynvml  # noqa: PLC0415  (only where the local machine is asked)

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        return tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in handles)
    finally:
        pynvml.nvmlShutdown()


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
