"""This machine: is it a login node, which cluster is it, which GPUs does it have."""

import functools
import os
import shutil
from pathlib import Path

from hpml_jobs.core.cluster import Cluster, Shape, sbatch_options
from hpml_jobs.errors import UsageError
from hpml_jobs.slurm.commands import has_sbatch, limits, partition_minutes


def check_can_submit(cluster: str) -> None:
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
