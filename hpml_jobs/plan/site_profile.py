"""A personal profile from what SLURM, the environment and this Python say: `hpml-jobs init`."""

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from hpml_jobs.core.paths import conf_folder, login_name
from hpml_jobs.plan.loader_workers import cpus_per_gpu, workers_for
from hpml_jobs.plan.profile import Block, Entry
from hpml_jobs.plan.site_choices import (
    choose_account,
    choose_gpu_type,
    choose_partition,
    qos_entries,
)
from hpml_jobs.slurm.site import Site

SCRATCH_VARIABLES = ("SCRATCH", "PSCRATCH", "WORK", "PROJECT")
"""Environment variables in which sites name a user's folders, the most suitable first."""

MINUTES = 30
"""The default time limit of a cell, conf/config.yaml."""

THREADS = 1
"""The default number of CPU threads per process, conf/config.yaml."""


class Profile(NamedTuple):
    """The blocks of the file, and what the user still has to decide, in sentences."""

    blocks: tuple[Block, ...]
    decisions: tuple[str, ...] = ()


def local_profile(why: str, gpus: tuple[str, ...]) -> Profile:
    """Return the profile of a machine without SLURM; every line of it is a comment.

    The defaults are right there: cells run on this machine, one after another.
    """
    devices = ", ".join(gpus) or "none"
    entries = (
        Entry("cluster", "local", f"detected: {why}", is_set=False),
        Entry("device", "cuda" if gpus else "cpu", f"NVIDIA GPUs: {devices}", is_set=False),
        Entry("threads", THREADS, f"CPU threads per process; CPUs: {os.cpu_count()}", is_set=False),
    )
    return Profile((_files(None), Block("this machine, without SLURM", entries)))


def slurm_profile(cluster: str, why: str, site: Site) -> Profile:
    """Return the profile of a SLURM cluster; `cluster` is the profile of conf/cluster it extends.

    `why` says how that was chosen. Of several partitions or accounts, the one that SLURM or an
    SBATCH_ variable names as default is set, the others are comments; so is what is not known.
    """
    known = _known(cluster)
    partition = choose_partition(site, known)
    gpu_type = choose_gpu_type(site, known, partition.chosen)
    account = choose_account(site, known)
    choices = (gpu_type, partition, account)
    entries = (
        *gpu_type.entries,
        *partition.entries,
        *account.entries,
        *qos_entries(site, account.chosen),
        *_memory(site, partition.chosen, gpu_type.chosen or known["gpu_type"]),
        _BUDGET,
        *_software(),
    )
    first = Entry("cluster", cluster, f"detected: {why}", is_set=False)
    study = (first, *_minutes(site, partition.chosen))
    return Profile(
        (
            _files(site),
            Block("studies", study),
            Block(f"jobs on this cluster (cluster={cluster})", entries, ("clusters", cluster)),
        ),
        tuple(choice.decision for choice in choices if choice.decision),
    )


_BUDGET = Entry(
    "gpu_hours_budget",
    100,
    "refuse a submission over so many GPU-hours; ask the site what your account has left",
    is_set=False,
)


def _known(cluster: str) -> dict[str, Any]:
    """Return the keys of a profile that comes with the program."""
    folder = conf_folder() / "cluster"
    files = [folder / "slurm.yaml", folder / f"{cluster}.yaml"]
    merged = OmegaConf.merge(*(OmegaConf.load(file) for file in files if file.exists()))
    return {str(key): value for key, value in OmegaConf.to_container(merged).items()}  # type: ignore[union-attr]


# ---- files ----


def _files(site: Site | None) -> Block:
    """Return the folders of studies and data, below the user's folder for large files."""
    folders = dict(_large_folders())
    entries = []
    for number, (folder, source) in enumerate(folders.items()):
        is_first = number == 0
        entries += [
            Entry(
                "outputs", f"{folder}/hpml/outputs", f"folder of the studies, {source}", is_first
            ),
            Entry("data.root", f"{folder}/data", f"folder of the data sets, {source}", is_first),
        ]
    if not folders:
        ask = (
            "ask the site for a folder that login node and compute nodes share"
            if site is not None
            else "default: the current folder"
        )
        entries += [
            Entry("outputs", "outputs", f"folder of the studies; {ask}", is_set=False),
            Entry("data.root", "data", f"folder of the data sets; {ask}", is_set=False),
        ]
    return Block("folders", tuple(entries))


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
    within = [each for each in site.partitions if each.name == partition] or site.partitions
    kinds = [kind for each in within for kind in each.kinds if kind.gpus]
    if not kinds:
        return
    share_gb = int(min(kind.memory_gb / kind.gpus for kind in kinds))
    per_cpu = site.config.get("DefMemPerCPU", "")
    default = "SLURM's default memory is not known"
    if per_cpu.isdigit():
        typed = [kind for kind in kinds if kind.gpu_type == gpu_type] or kinds
        workers = workers_for(gpu_type, min(kind.cpus // kind.gpus for kind in typed), THREADS)
        cpus = cpus_per_gpu(workers.number, THREADS)
        default = f"SLURM gives {cpus * int(per_cpu) / 1000:g} GB per GPU ({cpus} CPUs) by default"
    source = f"a node's memory per GPU; {default}"
    yield Entry("mem_gb_per_gpu", max(1, share_gb), source, is_set=False)


def _minutes(site: Site, partition: str | None) -> Iterator[Entry]:
    """Yield the time limit of a cell, which a partition may not allow."""
    limit = next((each.minutes for each in site.partitions if each.name == partition), None)
    if limit is not None and limit < MINUTES:
        source = f"time limit of a cell; partition {partition} allows no more"
        yield Entry("minutes", max(1, int(limit)), source)
    else:
        yield Entry("minutes", MINUTES, "time limit of each cell, the default", is_set=False)


def _software() -> Iterator[Entry]:
    """Yield the Python of the jobs, the loaded modules, and the container runtime."""
    has_torch = find_spec("torch") is not None
    torch = (
        "it has torch" if has_torch else "it has no torch: name a Python that has, or a container"
    )
    yield Entry("python", sys.executable, f"the default, this Python; {torch}", is_set=False)
    modules = os.environ.get("LOADEDMODULES", "").replace(":", " ")
    if modules:
        lines = (f"module load {modules}",)
        yield Entry("setup", lines, "loaded now; sbatch passes them on by default", is_set=False)
    elif "MODULESHOME" in os.environ or "LMOD_CMD" in os.environ:
        lines = ("module load NAME",)
        yield Entry("setup", lines, "this site has modules; none is loaded now", is_set=False)
    for runtime in ("apptainer", "singularity"):
        if shutil.which(runtime):
            yield Entry("container.runtime", runtime, f"{runtime} is on PATH", is_set=False)
            source = "the image with the jobs' Python; ask the site where its images are"
            yield Entry("container.image", "IMAGE.sif", source, is_set=False)
            break
