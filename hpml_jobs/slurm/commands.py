"""SLURM's commands: run with a time limit, their answers cached; the environment of jobs."""

import functools
import os
import re
import selectors
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import NamedTuple

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.sbatch import replacing_variables
from hpml_jobs.slurm.nodes import (
    SINFO_FORMAT,
    Node,
    parse_limits,
    parse_sinfo,
    parse_time_limits,
)

ASK_TIMEOUT_S = 10

ANSWER_BYTES = 64_000_000
"""The longest answer that is read; a line of squeue has about 100 bytes."""

_CHUNK_BYTES = 1 << 16


class CommandAnswer(NamedTuple):
    """The output of a SLURM command; `complaint` is the first line of its error message, or ours.

    `absent`: there is no such command on PATH, so that a later call would fail too.
    """

    code: int
    text: str
    complaint: str
    absent: bool = False


CLUSTER_VARIABLE = "SLURM_CLUSTERS"
"""Environment variable with the cluster that SLURM's commands ask, at a site with several."""

_cluster = ContextVar[str | None]("cluster", default=None)


def asked_cluster() -> str:
    """Return the cluster of the site that SLURM's commands ask; empty: this machine's."""
    chosen = _cluster.get()
    return os.environ.get(CLUSTER_VARIABLE, "") if chosen is None else chosen


def ask_cluster(name: str | None) -> None:
    """Let all SLURM commands from now on ask one cluster of the site; None: this machine's."""
    before = asked_cluster()
    _cluster.set(name or "")
    if asked_cluster() != before:
        for cached in (limits, inventory, partition_minutes):
            cached.cache_clear()


def _of_cluster(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the cluster that is asked."""
    of_cluster = dict(environment)
    of_cluster.pop(CLUSTER_VARIABLE, None)
    if cluster := asked_cluster():
        of_cluster[CLUSTER_VARIABLE] = cluster
    return of_cluster


def ask_slurm(*command: str, timeout_s: float = ASK_TIMEOUT_S) -> CommandAnswer:
    """Run a SLURM command with a time limit, without the user's own output formats.

    It prints times as seconds since 1970.
    """
    formats = re.compile(r"(SQUEUE|SINFO|SACCT)_")
    environment = {name: v for name, v in os.environ.items() if not formats.match(name)}
    environment = _of_cluster(environment) | {"SLURM_TIME_FORMAT": "%s"}
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
    except FileNotFoundError:
        return CommandAnswer(1, "", "not on PATH", absent=True)
    except OSError as fault:
        return CommandAnswer(1, "", str(fault))
    with process:
        try:
            out, err = _read_bounded(process, time.monotonic() + timeout_s)
            code = process.wait(timeout_s)
        except (TimeoutError, subprocess.TimeoutExpired):
            return CommandAnswer(1, "", f"no answer within {timeout_s:g} s")
        except OverflowError as fault:
            return CommandAnswer(1, "", str(fault))
        finally:
            process.kill()  # no effect on a process that has ended
    first_line, *_ = err.decode(errors="replace").strip().splitlines() or [""]
    return CommandAnswer(code, out.decode(errors="replace"), first_line)


def _read_bounded(
    process: "subprocess.Popen[bytes]", deadline: float
) -> tuple[bytes, bytes]:
    """Read what a process prints to both its outputs until it closes them.

    Raises:
        TimeoutError: that took until the deadline.
        OverflowError: it prints more than ANSWER_BYTES.
    """
    pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
    printed = {pipe.fileno(): bytearray() for pipe in pipes}
    with selectors.DefaultSelector() as outputs:
        for pipe in pipes:
            outputs.register(pipe, selectors.EVENT_READ)
        while outputs.get_map():
            for key, _ in outputs.select(max(0.0, deadline - time.monotonic())):
                chunk = os.read(key.fd, _CHUNK_BYTES)
                if not chunk:
                    outputs.unregister(key.fileobj)
                printed[key.fd] += chunk
            if sum(map(len, printed.values())) > ANSWER_BYTES:
                raise OverflowError(f"printed more than {ANSWER_BYTES // 1_000_000} MB")
            if time.monotonic() > deadline:
                raise TimeoutError
    out, err = printed.values()
    return bytes(out), bytes(err)


def _output(*command: str) -> str:
    """Return what a SLURM command prints; nothing if it fails."""
    answer = ask_slurm(*command)
    return answer.text if answer.code == 0 else ""


def has_sbatch() -> bool:
    """Return whether sbatch is on PATH."""
    return shutil.which("sbatch") is not None


@functools.cache
def limits() -> dict[str, str]:
    """Return `scontrol show config` as a mapping; empty if it does not answer."""
    return parse_limits(_output("scontrol", "show", "config"))


@functools.cache
def inventory() -> tuple[Node, ...]:
    """Return the cluster's nodes; empty if sinfo does not answer."""
    return tuple(parse_sinfo(_output("sinfo", "-h", "-N", "-o", SINFO_FORMAT)))


@functools.cache
def partition_minutes() -> dict[str, float]:
    """Return the longest time limit of each partition in minutes; those without one are absent."""
    return parse_time_limits(_output("sinfo", "-h", "-o", "%P|%l"))


HOSTS_VARIABLE = "HPML_JOBS_HOSTS"
"""Environment variable with the hosts of a job, the first node's first."""


def hosts_of_job() -> list[str]:
    """Return the hosts of the surrounding job in SLURM's order, listed outside any container.

    Raises:
        HpmlError: SLURM does not say; a multi-node cell never falls back to localhost.
    """
    hosts = os.environ.get(HOSTS_VARIABLE, "").split()
    if not hosts and os.environ.get("SLURM_JOB_NODELIST"):
        text = _output(
            "scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]
        )
        hosts = text.split()
    if not hosts:
        raise HpmlError(
            "the job's hosts are unknown: scontrol show hostnames printed nothing"
        )
    if not all(re.fullmatch(r"[A-Za-z0-9._-]+", host) for host in hosts):
        raise HpmlError(f"these are not host names: {hosts}")
    return hosts


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


LEAKING = re.compile(
    r"SLURM_|SLURMD_|SRUN_|SBATCH_|SALLOC_|PET_|PMI|TORCHELASTIC_|SUBMITIT_|GROUP_RANK|ROLE_|"
    r"(RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)$"
)


def scrubbed(environment: dict[str, str], *, inside_job: bool) -> dict[str, str]:
    """Return an environment without the variables that a surrounding job leaks; SLURM_CONF stays.

    Outside a job, SBATCH_* variables are the user's defaults and stay too.

    >>> scrubbed({"SLURM_CPU_BIND": "x", "SLURM_CONF": "c", "RANK": "0", "A": "b"}, inside_job=True)
    {'SLURM_CONF': 'c', 'A': 'b'}
    """

    def is_kept(name: str) -> bool:
        if name == "SLURM_CONF":
            return True
        if name.startswith("SBATCH_") and not inside_job:
            return True
        return LEAKING.match(name) is None

    return {name: value for name, value in environment.items() if is_kept(name)}


def sbatch_environment(script: str) -> dict[str, str]:
    """Return this program's environment for sbatch, which exports it into the job.

    It is without a surrounding job's variables, and without those that would replace what the
    script requests.
    """
    replacing = replacing_variables(script, os.environ)
    kept = scrubbed(dict(os.environ), inside_job="SLURM_JOB_ID" in os.environ)
    kept = {name: v for name, v in kept.items() if name not in replacing}
    return _of_cluster(kept)


_ALLOCATION = re.compile(
    r"SLURM_(JOB_(ID|NAME|NODELIST|NUM_NODES|PARTITION|QOS|GPUS|CPUS_PER_NODE)|ARRAY_(JOB|TASK)_ID|"
    r"CLUSTER_NAME|RESTART_COUNT|CPUS_.*|GPUS.*|MEM_.*|STEP_(ID|GPUS|NODELIST|NUM_NODES)|NNODES|"
    r"NODEID|NTASKS.*|TRES_PER_TASK|TOPOLOGY_ADDR|SUBMIT_HOST|CONF)"
)


def about_allocation(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that describe a job's allocation; a list, because tokens must stay out.

    >>> about_allocation({"SLURM_JOB_ID": "17", "SLURM_JWT": "secret", "HOME": "/"})
    {'SLURM_JOB_ID': '17'}
    """
    return {name: v for name, v in environment.items() if _ALLOCATION.fullmatch(name)}


ASSOCIATION_FIELDS = "Cluster,Account,QOS"

ACCOUNT = re.compile(r"\w[\w.+-]*", re.ASCII)
"""The name of an account."""


class Association(NamedTuple):
    """An account that the user may charge, and the QOS that jobs of it may have."""

    account: str
    qos: tuple[str, ...] = ()


def ask_associations(user: str, timeout_s: float = ASK_TIMEOUT_S) -> CommandAnswer:
    """Ask sacctmgr for the accounts of a user, for `parse_associations`."""
    what = ("show", "associations", f"user={user}", f"format={ASSOCIATION_FIELDS}")
    return ask_slurm("sacctmgr", "-n", "-P", *what, timeout_s=timeout_s)


def parse_associations(text: str, cluster: str) -> tuple[Association, ...]:
    """Parse the answer of `ask_associations`; each account of this cluster once.

    >>> parse_associations("rig|lab|normal,long\\nold|x|\\n", "rig")
    (Association(account='lab', qos=('normal', 'long')),)
    """
    clusters = (cluster.lower(), "")
    qos_of: dict[str, dict[str, None]] = {}
    for line in text.splitlines():
        row = line.strip().split("|")
        if len(row) != 3 or row[0].lower() not in clusters:
            continue
        _, account, qos = row
        if ACCOUNT.fullmatch(account):
            names = dict.fromkeys(filter(None, qos.split(",")))
            qos_of.setdefault(account, {}).update(names)
    return tuple(Association(account, tuple(qos)) for account, qos in qos_of.items())
