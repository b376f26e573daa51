"""SLURM as this machine sees it: its commands, whether it answers, what it allows this person."""

import getpass
import shutil
import time
from typing import NamedTuple

from hpml_jobs.core.cluster import Cluster, Rule
from hpml_jobs.core.findings import Finding, ok, problem, warning
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.commands import ask_slurm

COMMANDS = ("sbatch", "srun", "squeue", "scontrol", "sinfo", "sacct", "scancel")
SUPPORT = "wait and try again, or ask the cluster's support"

_UP, _NO_ACCOUNTS = "is UP", "disabled"
"""What `scontrol ping` says of a controller that answers, and sacct where nothing is accounted."""


class Association(NamedTuple):
    """What an account allows a person, in SLURM's words; empty: no limit of that name."""

    account: str
    partition: str
    qos: tuple[str, ...]
    limits: dict[str, str]


_LIMITS = ("MaxJobs", "MaxSubmit", "GrpTRES", "MaxTRES")
ASSOCIATION_FORMAT = ",".join(("Cluster", "Account", "Partition", "QOS", *_LIMITS))
_QOS_LIMITS = ("MaxJobsPU", "MaxSubmitPU", "MaxTRESPU", "MaxWall")
QOS_FORMAT = ",".join(("Name", *_QOS_LIMITS))


def parse_associations(text: str, cluster: str) -> list[Association]:
    """`sacctmgr -nP show assoc format=ASSOCIATION_FORMAT` of one cluster.

    >>> parse_associations("hal|lab||normal,long|8|100||\\nold|x||||||\\n", "hal")[0].limits
    {'MaxJobs': '8', 'MaxSubmit': '100'}
    """
    rows = [line.split("|") for line in text.splitlines() if line.count("|") >= 7]
    return [
        Association(
            account=row[1],
            partition=row[2],
            qos=tuple(name for name in row[3].split(",") if name),
            limits=_set(_LIMITS, row[4:8]),
        )
        for row in rows
        if row[0].lower() == cluster.lower()
    ]


def parse_qos(text: str) -> dict[str, dict[str, str]]:
    """`sacctmgr -nP show qos format=QOS_FORMAT`: the limits that are set, by QOS.

    >>> parse_qos("normal||||\\ngpu48|||gres/gpu=24|2-00:00:00\\n")["gpu48"]
    {'MaxTRESPU': 'gres/gpu=24', 'MaxWall': '2-00:00:00'}
    """
    rows = [line.split("|") for line in text.splitlines() if line.count("|") >= 4]
    return {row[0]: _set(_QOS_LIMITS, row[1:5]) for row in rows}


def _set(names: tuple[str, ...], values: list[str]) -> dict[str, str]:
    return {name: value for name, value in zip(names, values, strict=True) if value}


def slurm_commands() -> Finding:
    """SLURM's commands are on PATH, all of one version."""
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    found = {ask_slurm(name, "--version").text.strip() for name in COMMANDS if name not in missing}
    versions = ", ".join(sorted(version for version in found if version)) or "no version told"
    if {*missing} - {"sacct"}:
        seen = f"{', '.join(missing)} not on PATH"
        return problem("commands", seen, "load the cluster's SLURM, e.g. module load slurm")
    if missing:
        remedy = "states come from squeue and from what jobs leave; sacct would tell more"
        return warning("commands", f"{versions}; sacct is not on PATH", remedy)
    if len(found) > 1:
        return warning("commands", versions, "commands of several SLURMs are on PATH: keep one")
    return ok("commands", f"{', '.join(COMMANDS)} of {versions}")


def controller() -> Finding:
    """The controller answers."""
    begun = time.monotonic()
    answer = ask_slurm("scontrol", "ping")
    took = f"{time.monotonic() - begun:.1f} s"
    if _UP in answer.text:
        return ok("controller", f"cluster {_name()} answers in {took}")
    said = " ".join((answer.text or answer.complaint).split()) or "nothing"
    return problem("controller", f"scontrol ping: {said} ({took})", SUPPORT)


def accounting() -> Finding:
    """Accounting answers: states of jobs that have left the queue."""
    answer = ask_slurm("sacct", "-X", "-P", "-n", "-o", "JobID", "-j", "1")
    if answer.code == 0:
        return ok("accounting", "sacct answers")
    if _NO_ACCOUNTS in answer.complaint:
        remedy = "states of ended jobs come from squeue and from what the jobs leave"
        return warning("accounting", "SLURM keeps no accounts here", remedy)
    return warning("accounting", f"sacct: {answer.complaint}", SUPPORT)


def associations() -> list[Association]:
    """This person's accounts on this cluster; empty where sacctmgr does not answer."""
    answer = ask_slurm(
        *("sacctmgr", "-nP", "show", "assoc", f"user={getpass.getuser()}"),
        f"format={ASSOCIATION_FORMAT}",
    )
    return parse_associations(answer.text, _name()) if answer.code == 0 else []


def limits(cluster: Cluster, known: list[Association], cells: int) -> Finding:
    """What SLURM allows: array sizes, and this person's jobs."""
    config = commands.limits()
    parts = [f"{key} {config[key]}" for key in ("MaxArraySize", "MaxJobCount") if key in config]
    mine = [one for one in known if cluster.account in (None, one.account)]
    own = [(f"account {one.account}", one.limits) for one in mine]
    names = [cluster.qos] if cluster.qos else [name for one in mine for name in one.qos]
    if names:
        asked = ("show", "qos", "where", f"name={','.join(dict.fromkeys(names))}")
        answer = ask_slurm("sacctmgr", "-nP", *asked, f"format={QOS_FORMAT}")
        own += [(f"QOS {name}", found) for name, found in parse_qos(answer.text).items()]
    parts += [f"{who}: {_words(found)}" for who, found in own if found]
    if known and not any(found for _, found in own):
        parts.append("no limit on your jobs")
    seen = "; ".join(parts) or "SLURM tells none"
    most = [int(text) for _, found in own for key, text in found.items() if "MaxSubmit" in key]
    if most and min(most) < cells:
        remedy = f"these are {cells} cells: send the study in parts, or with pack=true"
        return warning("limits", seen, remedy)
    return ok("limits", seen)


def account(cluster: Cluster, known: list[Association]) -> Finding:
    """The account is one of this person's; given where the cluster wants one."""
    names = list(dict.fromkeys(one.account for one in known))
    yours = f"yours: {', '.join(names)}" if names else "sacctmgr names none of yours"
    give = f"cluster.account={names[0] if names else cluster.account_example}"
    if cluster.account is None:
        if cluster.account_rule is Rule.REQUIRED:
            remedy = f"add {give}, or put it into ~/.config/hpml_jobs/config.yaml"
            return problem("account", f"none given, cluster={cluster.name} wants one", remedy)
        return ok("account", f"none given: SLURM takes your default ({yours})")
    if names and cluster.account not in names:
        seen = f"{cluster.account} is not among your accounts ({yours})"
        return problem("account", seen, f"cluster.account={names[0]}")
    return ok("account", cluster.account + ("" if names else f" ({yours})"))


def _name() -> str:
    return commands.limits().get("ClusterName", "")


def _words(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in found.items())
