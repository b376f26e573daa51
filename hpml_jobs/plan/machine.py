"""This machine: whether it is a login node, of which cluster, and its GPUs."""

import functools
import os
import shlex
import shutil
import sys
from collections.abc import Container
from importlib.util import find_spec
from pathlib import Path

from hpml_jobs.core.cluster import Cluster, GpuRequest, Shape, sbatch_options
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.gpus import (
    NvmlError,
    gpus_by_uuid,
    nvml_session,
    nvml_text,
    visible_gpus,
)
from hpml_jobs.slurm.commands import has_sbatch, limits, partition_minutes


def check_can_submit(cluster: Cluster) -> None:
    """Refuse a cluster's profile on a machine that cannot submit jobs that run."""
    missing = [
        command for command in ("sbatch", "srun") if shutil.which(command) is None
    ]
    if missing:
        raise UsageError(
            f"cluster={cluster.name}: {' and '.join(missing)} not on PATH; submit from a login "
            "node of the cluster (on this machine, use hpml-jobs plan for a preview, or "
            "cluster=local)"
        )
    if not cluster.shared_with_login and "SLURM_JOB_ID" not in os.environ:
        raise UsageError(
            f"cluster={cluster.name}: jobs do not see the files of this machine; start "
            f"`{_srun(cluster)}`, copy {Path.cwd()} there (scp or git clone), and repeat this "
            "command in the copy. If they do see them (hpml-jobs doctor), add "
            "cluster.shared_with_login=true"
        )
    names_no_python = cluster.python is cluster.container.image is None
    if names_no_python and find_spec("torch") is None:
        raise UsageError(
            f"torch is not installed for {sys.executable}, which the jobs would run: name the "
            "Python that has it, cluster.python=PATH, or a container (cluster.container.image=)"
        )


def _srun(cluster: Cluster) -> str:
    """Return the command that starts a shell on a node."""
    words = [f"--account={cluster.account}"] if cluster.account else []
    if cluster.gpu_request is GpuRequest.PARTITION:
        words.append("--partition=NAME")
    return shlex.join(["srun", *words, "--pty", "/bin/bash"])


def cluster_sign() -> str | None:
    """Return what shows that this machine belongs to a cluster; None if nothing does."""
    if "SLURM_CONF" in os.environ:
        return "SLURM_CONF"
    files = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
    return next((file for file in files if Path(file).exists()), None)


def longest_minutes(shape: Shape, cluster: Cluster) -> float | None:
    """Return the longest time limit, in minutes, that a shape may have; None without a limit.

    sbatch accepts a longer one, and the job never starts.
    """
    partition = sbatch_options(shape, cluster).get("partition") or ""
    return partition_minutes().get(str(partition))


GENERIC = ("auto", "local", "slurm", "ssh")
"""The profiles that are not those of a cluster with their name."""


def detect_cluster(profiles: Container[str]) -> tuple[str, str]:
    """Return the profile of this machine, and a sentence that says why.

    A profile has SLURM's ClusterName, in small letters.

    Raises:
        UsageError: the machine belongs to a cluster but cannot submit jobs: it must not train.
    """
    if not has_sbatch():
        _refuse_node_of_cluster()
        return (
            "local",
            "no sbatch on PATH: the cells run on this machine (cluster=local)",
        )
    if not limits() and not cluster_sign():
        reason = (
            "this machine is in no SLURM cluster: the cells run here (cluster=local)"
        )
        return "local", reason
    name = limits().get("ClusterName", "")
    profile = name.lower()
    if profile in profiles and profile not in GENERIC:
        return profile, f"SLURM's ClusterName is {name}: cluster={profile}"
    name = name or "not reported"
    return "slurm", f"SLURM's ClusterName is {name}: cluster=slurm (generic)"


def _refuse_node_of_cluster() -> None:
    sign = cluster_sign()
    # inside an allocation, training is right
    if sign and "SLURM_JOB_ID" not in os.environ:
        raise UsageError(
            f"sbatch is not on PATH, but {sign} shows that this machine belongs to a cluster: "
            "load SLURM (module load slurm), or use cluster=local to train on this machine"
        )


@functools.cache
def local_gpus() -> tuple[str, ...]:
    """Return the names of the NVIDIA GPUs that a process of this machine sees, without torch."""
    try:
        with nvml_session() as nvml:
            gpus = gpus_by_uuid(nvml)
            visible = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), [*gpus])
            names = [
                nvml_text(nvml.nvmlDeviceGetName(handle)) for handle in gpus.values()
            ]
    except NvmlError:
        return ()
    return tuple(names[number] for number in visible)
