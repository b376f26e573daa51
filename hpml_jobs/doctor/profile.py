"""A personal profile from what SLURM, the environment and this Python say: `hpml-jobs init`."""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from hpml_jobs.core.cluster import GpuRequest, Rule
from hpml_jobs.core.paths import conf_folder, login_name
from hpml_jobs.core.text import counted, duration_text
from hpml_jobs.doctor.profile_file import Entry, ProfileBlock
from hpml_jobs.doctor.site import NodeKind, Partition, Site
from hpml_jobs.plan.loader import cpus_per_gpu, workers_for


class ProfileChoice(NamedTuple):
    """The entries of one key; `chosen` is the value in effect, `decision` what is left open."""

    entries: tuple[Entry, ...]
    chosen: str | None = None
    decision: str = ""


_IS_DEFAULT = "SLURM's default partition"


def choose_partition(site: Site, profile: Mapping[str, Any]) -> ProfileChoice:
    """Return the partition: SLURM's default if it has GPUs, or the only one that has."""
    if profile["gpu_request"] == GpuRequest.PARTITION:
        source = f"of cluster={profile['name']} it follows from gpu_type and gpus"
        return ProfileChoice((Entry("partition", "NAME", source, is_set=False),))
    if not site.partitions:
        source = "sinfo did not answer; ask the site which partitions have GPUs"
        return ProfileChoice((Entry("partition", "NAME", source, is_set=False),))
    chosen, reason, decision = _chosen_partition(
        site, is_generic=profile["name"] == "slurm"
    )
    first = [] if chosen is None else [Entry("partition", chosen, reason)]
    comments = []
    for partition in site.partitions:
        description = _described(partition)
        if partition.name == chosen:
            first = [Entry("partition", chosen, f"{reason}; {description}")]
            continue
        if partition.is_default:
            description = f"{_IS_DEFAULT}; {description}"
        comments.append(Entry("partition", partition.name, description, is_set=False))
    return ProfileChoice((*first, *comments), chosen, decision)


def _chosen_partition(site: Site, *, is_generic: bool) -> tuple[str | None, str, str]:
    """Return the partition to set, the reason, and what is left to decide.

    In a profile that is made for its cluster, only the environment sets one: the site's rules
    choose it by the GPUs of a job.
    """
    of_environment = os.environ.get("SBATCH_PARTITION")
    if of_environment:
        return of_environment, "from SBATCH_PARTITION", ""
    if not is_generic:
        return None, "", ""
    up = [partition for partition in site.partitions if partition.is_up]
    with_gpus = [partition for partition in up if partition.has_gpus]
    suitable = [partition.name for partition in with_gpus or up]
    kind = "with GPUs " if with_gpus else ""
    default = site.default_partition
    if default in suitable:
        return default, _IS_DEFAULT, ""
    if len(suitable) == 1:
        reason = f"the only partition {kind}that is up; SLURM's default: {default}"
        return suitable[0], reason, ""
    why = f"SLURM's default, {default}, has no GPUs"
    if default is None:
        why = "SLURM has no default"
    names = ", ".join(suitable) or "none"
    return None, "", f"cluster.partition: {why}; partitions {kind}that are up: {names}"


def _described(partition: Partition) -> str:
    """Return a partition's nodes and time limit in words."""
    nodes = ", ".join(
        f"{counted(kind.nodes, 'node')} x {_gpus_text(kind.gpu_type, kind.gpus)}"
        for kind in partition.kinds
    )
    limit = partition.minutes
    words = "no time limit" if limit is None else f"at most {duration_text(60 * limit)}"
    state = "" if partition.is_up else "; down"
    return f"{nodes}; {words}{state}"


def _gpus_text(gpu_type: str | None, gpus: int) -> str:
    return f"{gpus} {gpu_type or 'GPUs without a type'}" if gpus else "no GPU"


def choose_gpu_type(
    site: Site, profile: Mapping[str, Any], partition: str | None
) -> ProfileChoice:
    """Return the GPU type: the one with the most GPUs in the partition."""
    if profile["gpu_types"]:
        return _type_of_profile(profile)
    kinds = _kinds_with_gpus(site, partition)
    totals = Counter[str]()
    for kind in kinds:
        if kind.gpu_type is not None:
            totals[kind.gpu_type] += kind.nodes * kind.gpus
    if not totals:
        return _without_types(site, has_untyped=bool(kinds))
    where = f"in partition {partition}" if partition else "by sinfo"
    first, *rest = sorted(totals, key=lambda name: (-totals[name], name))
    reason = f"the only type {where}"
    decision = ""
    if rest:
        numbers = ", ".join(f"{totals[name]} {name}" for name in rest)
        reason = f"most GPUs {where} ({totals[first]}); others: {numbers}"
        decision = f"cluster.gpu_type={first}: {reason}"
    entries = [Entry("gpu_type", first, reason)]
    for name in rest:
        number = counted(totals[name], "GPU")
        entries.append(Entry("gpu_type", name, f"{number} {where}", is_set=False))
    return ProfileChoice(tuple(entries), first, decision)


def _type_of_profile(profile: Mapping[str, Any]) -> ProfileChoice:
    default = profile["gpu_type"]
    names = (
        ", ".join(name for name in profile["gpu_types"] if name != default) or "none"
    )
    source = f"the default of cluster={profile['name']}; others: {names}"
    return ProfileChoice((Entry("gpu_type", default, source, is_set=False),))


def _kinds_with_gpus(site: Site, partition: str | None) -> list[NodeKind]:
    """Return the kinds of nodes with GPUs of a partition; of all where that is not known."""
    named = [part for part in site.partitions if part.name == partition]
    return [
        kind for part in named or site.partitions for kind in part.kinds if kind.gpus
    ]


def _without_types(site: Site, *, has_untyped: bool) -> ProfileChoice:
    """Return what is known of the GPUs where SLURM has no type of them."""
    if not site.partitions:
        source = "sinfo did not answer; ask the site which GPU types there are"
        return ProfileChoice((Entry("gpu_type", "TYPE", source, is_set=False),))
    if not has_untyped:
        return ProfileChoice((Entry("device", "cpu", "sinfo lists no GPU"),))
    kinds = _kinds_with_gpus(site, None)
    features = sorted(frozenset[str]().union(*(kind.features for kind in kinds)))
    named = "nodes have no features"
    if features:
        named = f"node features are {', '.join(features)}"
    source = f"SLURM has no GPU types here; {named}: ask the site which of them names a GPU model"
    per_node = max(kind.gpus for kind in kinds)
    return ProfileChoice(
        (
            Entry(
                "gpu_request", GpuRequest.GRES_CONSTRAINT.value, source, is_set=False
            ),
            Entry("gpu_type", "FEATURE", "that feature", is_set=False),
            Entry("gpu_types.FEATURE", per_node, "GPUs per node", is_set=False),
        ),
        decision=f"cluster.gpu_types: {source}",
    )


def choose_account(site: Site, profile: Mapping[str, Any]) -> ProfileChoice:
    """Return the account: of the environment, SLURM's default, or the only one."""
    names = [association.account for association in site.associations]
    chosen, source = _chosen_account(site, names)
    entries = [Entry("account", chosen, source)] if chosen else []
    for name in names:
        if name != chosen:
            source = f"an account of yours, by {site.accounts_from}"
            entries.append(Entry("account", name, source, is_set=False))
    decision = ""
    if not entries:
        is_required = profile["account_rule"] == Rule.REQUIRED
        needed = "is required here" if is_required else "may be needed"
        source = (
            f"{needed}; sacctmgr names none: ask the site which account you may charge"
        )
        entries = [Entry("account", "NAME", source, is_set=False)]
        decision = f"cluster.account {source}"
    elif not chosen:
        decision = (
            f"cluster.account: SLURM names no default of yours: {', '.join(names)}"
        )
    return ProfileChoice(tuple(entries), chosen, decision)


def _chosen_account(site: Site, names: Sequence[str]) -> tuple[str | None, str]:
    """Return the account to set, and where it comes from."""
    of_environment = os.environ.get("SBATCH_ACCOUNT")
    if of_environment:
        return of_environment, "from SBATCH_ACCOUNT"
    if site.default_account:
        return site.default_account, "your default account, by sacctmgr"
    if len(names) == 1:
        return names[0], f"your only account, by {site.accounts_from}"
    return None, ""


def qos_entries(site: Site, account: str | None) -> Iterator[Entry]:
    """Yield the QOS that jobs of the account may have."""
    association = site.association(account)
    of_environment = os.environ.get("SBATCH_QOS")
    if of_environment:
        yield Entry("sbatch.qos", of_environment, "from SBATCH_QOS")
    for qos in association.qos:
        if qos != of_environment:
            source = "also allowed, by sacctmgr"
            if qos == association.default_qos:
                source = "SLURM takes it by itself"
            yield Entry("sbatch.qos", qos, source, is_set=False)


SCRATCH_VARIABLES = ("SCRATCH", "PSCRATCH", "WORK", "PROJECT")
"""Environment variables in which sites name a user's folders, the most suitable first."""

MINUTES = 30
"""The default time limit of a cell, conf/config.yaml."""

THREADS = 1
"""The default number of CPU threads per process, conf/config.yaml."""


class Profile(NamedTuple):
    """The blocks of the file, and what the user still has to decide, in sentences."""

    blocks: tuple[ProfileBlock, ...]
    decisions: tuple[str, ...] = ()


def local_profile(why: str, gpus: tuple[str, ...]) -> Profile:
    """Return the profile of a machine without SLURM; every line of it is a comment.

    The defaults are right there: cells run on this machine, one after another.
    """
    devices = ", ".join(gpus) or "none"
    entries = (
        Entry("cluster", "local", f"detected: {why}", is_set=False),
        Entry(
            "device", "cuda" if gpus else "cpu", f"NVIDIA GPUs: {devices}", is_set=False
        ),
        Entry(
            "threads",
            THREADS,
            f"CPU threads per process; CPUs: {os.cpu_count()}",
            is_set=False,
        ),
    )
    return Profile((_files(None), ProfileBlock("this machine, without SLURM", entries)))


def slurm_profile(cluster: str, why: str, site: Site) -> Profile:
    """Return the profile of a SLURM cluster; `cluster` is the profile of conf/cluster it extends.

    `why` says how that was chosen. Of several partitions or accounts, the one that SLURM or an
    SBATCH_ variable names as default is set, the others are comments; so is what is not known.
    """
    profile = _packaged(cluster)
    partition = choose_partition(site, profile)
    gpu_type = choose_gpu_type(site, profile, partition.chosen)
    account = choose_account(site, profile)
    choices = (gpu_type, partition, account)
    entries = (
        *gpu_type.entries,
        *partition.entries,
        *account.entries,
        *qos_entries(site, account.chosen),
        *_memory(site, partition.chosen, gpu_type.chosen or profile["gpu_type"]),
        _BUDGET,
        *_software(),
    )
    first = Entry("cluster", cluster, f"detected: {why}", is_set=False)
    study = (first, *_minutes(site, partition.chosen))
    return Profile(
        (
            _files(site),
            ProfileBlock("studies", study),
            ProfileBlock(
                f"jobs on this cluster (cluster={cluster})",
                entries,
                ("clusters", cluster),
            ),
        ),
        tuple(choice.decision for choice in choices if choice.decision),
    )


_BUDGET = Entry(
    "gpu_hours_budget",
    100,
    "refuse a submission over so many GPU-hours; ask the site what your account has left",
    is_set=False,
)


def _packaged(cluster: str) -> dict[str, Any]:
    """Return the keys of a profile that comes with the program."""
    folder = conf_folder() / "cluster"
    files = [folder / "slurm.yaml", folder / f"{cluster}.yaml"]
    loaded = [OmegaConf.load(file) for file in files if file.exists()]
    merged = OmegaConf.to_container(OmegaConf.merge(*loaded))
    return {str(key): value for key, value in merged.items()}  # type: ignore[union-attr]


# ---- files ----


def _files(site: Site | None) -> ProfileBlock:
    """Return the folders of studies and data, below the user's folder for large files."""
    entries: list[Entry] = []
    for folder, source in dict(_large_folders()).items():
        outputs, data = f"{folder}/hpml/outputs", f"{folder}/data"
        is_first = not entries
        entries += [
            Entry("outputs", outputs, f"folder of the studies, {source}", is_first),
            Entry("data.root", data, f"folder of the data sets, {source}", is_first),
        ]
    if not entries:
        remark = "default: the current folder"
        if site is not None:
            remark = "ask the site for a folder that login node and compute nodes share"
        entries = [
            Entry(
                "outputs", "outputs", f"folder of the studies; {remark}", is_set=False
            ),
            Entry(
                "data.root", "data", f"folder of the data sets; {remark}", is_set=False
            ),
        ]
    return ProfileBlock("folders", tuple(entries))


def _large_folders() -> Iterator[tuple[str, str]]:
    """Yield the user's folders for large files, each with its source."""
    for name in SCRATCH_VARIABLES:
        folder = os.environ.get(name, "")
        if folder.startswith("/") and Path(folder).is_dir():
            yield folder.rstrip("/"), f"${name}"
    folder = f"/scratch/{login_name()}"
    if not folder.endswith("/") and os.access(folder, os.W_OK):
        yield folder, "a folder that you can write"


def _memory(site: Site, partition: str | None, gpu_type: str | None) -> Iterator[Entry]:
    """Yield the memory that a node has per GPU, and what SLURM gives by default.

    The latter is by CPU: a cell requests one for each loader worker, whose number depends on the
    GPU, and some more.
    """
    kinds = _kinds_with_gpus(site, partition)
    if not kinds:
        return
    share_gb = int(min(kind.memory_gb / kind.gpus for kind in kinds))
    per_cpu = site.config.get("DefMemPerCPU", "")
    default = "SLURM's default memory is not known"
    if per_cpu.isdigit():
        typed = [kind for kind in kinds if kind.gpu_type == gpu_type] or kinds
        workers = workers_for(
            gpu_type, min(kind.cpus // kind.gpus for kind in typed), THREADS
        )
        cpus = cpus_per_gpu(workers.number, THREADS)
        default = f"SLURM gives {cpus * int(per_cpu) / 1000:g} GB per GPU ({cpus} CPUs) by default"
    source = f"a node's memory per GPU; {default}"
    yield Entry("mem_gb_per_gpu", max(1, share_gb), source, is_set=False)


def _minutes(site: Site, partition: str | None) -> Iterator[Entry]:
    """Yield the time limit of a cell, which a partition may not allow."""
    limit = next(
        (part.minutes for part in site.partitions if part.name == partition), None
    )
    if limit is not None and limit < MINUTES:
        source = f"time limit of a cell; partition {partition} allows no more"
        yield Entry("minutes", max(1, int(limit)), source)
    else:
        yield Entry(
            "minutes", MINUTES, "time limit of each cell, the default", is_set=False
        )


def _software() -> Iterator[Entry]:
    """Yield the Python of the jobs, the loaded modules, and the container runtime."""
    torch = "it has torch"
    if find_spec("torch") is None:
        torch = "it has no torch: name a Python that has, or a container"
    yield Entry(
        "python", sys.executable, f"the default, this Python; {torch}", is_set=False
    )
    modules = os.environ.get("LOADEDMODULES", "").replace(":", " ")
    if modules:
        lines = (f"module load {modules}",)
        yield Entry(
            "setup", lines, "loaded now; sbatch passes them on by default", is_set=False
        )
    elif "MODULESHOME" in os.environ or "LMOD_CMD" in os.environ:
        lines = ("module load NAME",)
        yield Entry(
            "setup", lines, "this site has modules; none is loaded now", is_set=False
        )
    yield from _container()


def _container() -> Iterator[Entry]:
    """Yield the container runtime, and what an image would be named by; nothing without one."""
    for runtime in ("apptainer", "singularity"):
        if shutil.which(runtime):
            yield Entry(
                "container.runtime", runtime, f"{runtime} is on PATH", is_set=False
            )
            source = (
                "the image with the jobs' Python; ask the site where its images are"
            )
            yield Entry("container.image", "IMAGE.sif", source, is_set=False)
            return
