"""Your defaults from what SLURM and the environment say, as a file: `hpml-jobs init`."""

import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from hpml_jobs.core.cluster import GpuRequest
from hpml_jobs.core.paths import conf_folder, login_name
from hpml_jobs.core.text import VERSION
from hpml_jobs.doctor.before_queue import associations
from hpml_jobs.plan.config_folders import ConfigFolders
from hpml_jobs.plan.machine import detect_cluster
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.commands import ACCOUNT, ask_slurm, has_sbatch

HEAD = """\
# Personal defaults for every study, by hpml-jobs init {version} on {date}. The command line goes
# over this file. A line `# key:` has no effect: remove `# ` and choose. All keys: docs/commands.md.
"""

ACCOUNTS_TOOL = "my_slurm_accounts"
"""NYU's list of a user's accounts, where sacctmgr names none."""

SCRATCH_VARIABLES = ("SCRATCH", "PSCRATCH", "WORK", "PROJECT")
"""Environment variables in which sites name a user's folders, the most suitable first."""

MINUTES = 30
"""The default time limit of a cell, conf/config.yaml."""


class Default(NamedTuple):
    """A key with its value, None where nothing says which, and where it comes from."""

    key: str
    value: str | int | None
    remark: str

    @property
    def line(self) -> str:
        """The line of the file."""
        remark = " ".join(self.remark.split())
        if self.value is None:
            return f"# {self.key}:  # {remark}"
        return f"{self.key}: {json.dumps(self.value, ensure_ascii=False)}  # {remark}"


class Profile(NamedTuple):
    """Defaults of all studies, and of jobs on a cluster; without SLURM there are none of these."""

    of_studies: list[Default]
    cluster: str = ""
    of_cluster: list[Default] = []

    @property
    def text(self) -> str:
        """The file."""
        head = HEAD.format(version=VERSION, date=time.strftime("%Y-%m-%d"))
        lines = [default.line for default in self.of_studies]
        if self.cluster:
            lines += ["clusters:", f"  {self.cluster}:"]
        lines += [f"    {default.line}" for default in self.of_cluster]
        return "\n".join([head, *lines, ""])


def make_profile() -> Profile:
    """Return the defaults that this machine, its SLURM and the environment name."""
    if not has_sbatch():
        return Profile(_folders())
    cluster, _ = detect_cluster(ConfigFolders(None).choices("cluster"))
    if cluster == "local":  # sbatch is here, but SLURM does not say which cluster
        cluster = "slurm"
    folder = conf_folder() / "cluster"
    files = [folder / "slurm.yaml", folder / f"{cluster}.yaml"]
    keys: Any = OmegaConf.to_container(OmegaConf.merge(*map(OmegaConf.load, files)))
    partition = _partition(keys)
    name = None if partition.value is None else str(partition.value)
    of_cluster = [_gpu_type(keys, name), partition, _account()]
    return Profile([*_folders(), *_minutes(name)], cluster, of_cluster)


def _folders() -> list[Default]:
    """Return the folders of studies and data, below the user's folder for large files."""
    named = [(os.environ.get(name, ""), f"${name}") for name in SCRATCH_VARIABLES]
    named.append((f"/scratch/{login_name()}", "a folder that you can write"))
    for folder, source in named:
        if Path(folder).is_absolute() and os.access(folder, os.W_OK):
            return [
                Default("outputs", f"{folder}/hpml/outputs", source),
                Default("data.root", f"{folder}/data", source),
            ]
    remark = "a folder that login node and compute nodes share"
    return [Default("outputs", None, remark), Default("data.root", None, remark)]


def _minutes(partition: str | None) -> list[Default]:
    """Return the time limit of a cell, if the partition does not allow the default one."""
    limit = commands.partition_minutes().get(partition or "", MINUTES)
    if limit >= MINUTES:
        return []
    remark = f"partition {partition} allows no more"
    return [Default("minutes", max(1, int(limit)), remark)]


def _partition(profile: Mapping[str, Any]) -> Default:
    """Return the partition: SLURM's default if it has GPUs, or the only one that has.

    In a profile that is made for its cluster, only the environment sets one: the site's rules
    choose it by the GPUs of a job.
    """
    of_environment = os.environ.get("SBATCH_PARTITION")
    if of_environment:
        return Default("partition", of_environment, "SBATCH_PARTITION")
    if profile["gpu_request"] == GpuRequest.PARTITION:
        return Default("partition", None, "follows from gpu_type and gpus")
    answer = ask_slurm("sinfo", "-h", "-o", "%P|%a").text.split()
    up = dict.fromkeys(line.removesuffix("|up") for line in answer if "|up" in line)
    default = next((name.rstrip("*") for name in up if name.endswith("*")), "none")
    names = [name.rstrip("*") for name in up]
    gpu_nodes = [node for node in commands.inventory() if node.gpus]
    with_gpus = frozenset[str]().union(*(node.partitions for node in gpu_nodes))
    suitable = [name for name in names if name in with_gpus] or names
    remark = f"SLURM's default: {default}; suitable: {', '.join(suitable) or 'none'}"
    chosen = None
    if profile["name"] == "slurm" and default in suitable:
        chosen = default
    elif profile["name"] == "slurm" and len(suitable) == 1:
        (chosen,) = suitable
    return Default("partition", chosen, remark)


def _gpu_type(profile: Mapping[str, Any], partition: str | None) -> Default:
    """Return the GPU type: the one with the most GPUs in the partition."""
    if profile["gpu_types"]:
        types = ", ".join(profile["gpu_types"])
        remark = f"default: {profile['gpu_type']}; choices: {types}"
        return Default("gpu_type", None, remark)
    nodes = commands.inventory()
    if nodes and not any(node.gpus for node in nodes):
        return Default("device", "cpu", "sinfo lists no GPU")
    totals = Counter[str]()
    for node in nodes:
        if node.gpu_type and (partition is None or partition in node.partitions):
            totals[node.gpu_type] += node.gpus
    if not totals:
        remark = "sinfo names none; ask the site which types or node features there are"
        return Default("gpu_type", None, remark)
    numbers = ", ".join(f"{count} {name}" for name, count in totals.most_common())
    return Default("gpu_type", max(totals, key=totals.__getitem__), f"GPUs: {numbers}")


def _account() -> Default:
    """Return the account: of the environment, SLURM's default, or the only one."""
    of_environment = os.environ.get("SBATCH_ACCOUNT")
    if of_environment:
        return Default("account", of_environment, "SBATCH_ACCOUNT")
    names = [association.account for association in associations()]
    names = names or _names_by_tool(ask_slurm(ACCOUNTS_TOOL).text)
    remark = f"yours: {', '.join(names)}" if names else "ask the site for yours"
    show = ("show", "user", login_name(), "format=DefaultAccount")
    default = ask_slurm("sacctmgr", "-n", "-P", *show).text.strip() if names else ""
    if default not in names:
        default = names[0] if len(names) == 1 else ""
    return Default("account", default or None, remark)


def _names_by_tool(text: str) -> list[str]:
    """Parse the answer of my_slurm_accounts: a head, a line of dashes, an account per line.

    >>> _names_by_tool("Account  Descr\\n-------  -----\\ntorch_pr_1_lab  our lab\\n")
    ['torch_pr_1_lab']
    """
    words = [line.split()[0] for line in text.splitlines() if line.strip()]
    rows = itertools.dropwhile(lambda word: not word.startswith("--"), words)
    return [word for word in rows if ACCOUNT.fullmatch(word)]
