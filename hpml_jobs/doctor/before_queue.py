"""What this machine knows to be wrong with the jobs of a plan, before they are queued."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpml_jobs.core.answers import Finding, Severity, ok, problem, warning
from hpml_jobs.core.cluster import Cluster, Container, Rule
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import login_name
from hpml_jobs.core.text import VERSION
from hpml_jobs.plan.cells import Plan
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.commands import (
    ASK_TIMEOUT_S,
    Association,
    ask_associations,
    parse_associations,
)
from hpml_jobs.submit.explain import ACCEPTED, ask_sbatch
from hpml_jobs.submit.job_requests import JobRequest
from hpml_jobs.submit.scripts import followup_script, script

ASK_SUPPORT = "try again later, or ask the cluster's support"


def before_queue(plan: Plan) -> Iterator[str]:
    """Yield what only a node can tell of the jobs of a plan.

    Raises:
        UsageError: the first problem that this machine knows, with its remedy.
    """
    for finding in findings(plan):
        text = f"{finding.about}: {finding.seen}; {finding.remedy}"
        if finding.level is Severity.PROBLEM:
            raise UsageError(text)
        if finding.remedy == NODES_MAY_DIFFER:
            yield f"warning: {text}"


def findings(plan: Plan) -> Iterator[Finding]:
    """Yield what this machine knows to be wrong with the jobs of a plan.

    It starts no container and asks SLURM only about what the user has named.
    """
    cluster, outputs = plan.cluster, plan.study.root
    if cluster.account or "qos" in cluster.sbatch:
        accounts = associations()
        yield check_account(cluster, accounts)
        yield check_qos(cluster, accounts)
    if cluster.container.image is not None:
        yield from check_container(cluster, outputs)
    elif cluster.python is not None:
        yield from check_python(cluster, outputs)
    if plan.has_followup:
        yield check_followup(plan)


def associations() -> tuple[Association, ...]:
    """Return this user's accounts on this cluster; none if sacctmgr does not answer."""
    answer = ask_associations(login_name())
    return parse_associations(answer.text, cluster_name()) if answer.code == 0 else ()


def check_account(cluster: Cluster, accounts: Sequence[Association]) -> Finding:
    """Check that the account is one of this user's, and given if the cluster requires one."""
    names = list(dict.fromkeys(account.account for account in accounts))
    yours = f"yours: {', '.join(names)}" if names else "sacctmgr lists none of yours"
    give = f"cluster.account={names[0] if names else 'NAME'}"
    if cluster.account is None:
        if cluster.account_rule is Rule.REQUIRED:
            remedy = f"add {give}, or set it in ~/.config/hpml_jobs/config.yaml"
            return problem(
                "account",
                f"none given, but cluster={cluster.name} requires one",
                remedy,
            )
        return ok("account", f"none given: SLURM uses your default ({yours})")
    if not names:
        return ok("account", f"{cluster.account} ({yours})")
    if cluster.account.lower() not in map(str.lower, names):
        observed = f"{cluster.account} is not among your accounts ({yours})"
        return problem("account", observed, f"use {give}")
    return ok("account", cluster.account)


def check_qos(cluster: Cluster, accounts: Sequence[Association]) -> Finding:
    """Check that the QOS is one of this user's, of the account if one is given."""
    usable = [entry for entry in accounts if cluster.account in (None, entry.account)]
    names = list(dict.fromkeys(name for entry in usable for name in entry.qos))
    qos = str(cluster.sbatch.get("qos") or "")
    if not (qos and names):
        return ok("qos", qos or "none given: SLURM uses your default")
    if qos.lower() not in map(str.lower, names):
        observed = f"{qos} is not a QOS of yours ({', '.join(names)})"
        return problem("qos", observed, f"use cluster.sbatch.qos={names[0]}")
    return ok("qos", qos)


def cluster_name() -> str:
    """Return the name of this cluster; empty if SLURM does not say it."""
    return commands.limits().get("ClusterName", "")


_REMEDIES = (
    ("account", "set cluster.account="),
    ("qos", "set +cluster.sbatch.qos="),
    ("partition", "set cluster.partition="),
    ("time limit", "lower minutes="),
    ("array", "submit fewer cells at a time"),
    (
        "node configuration",
        "wait if nodes are down or drained (line nodes); else lower gpus= or "
        "cluster.mem_gb_per_gpu=, or choose another gpu_type=",
    ),
)
"""Words of SLURM's refusal and remedies; the first word that the refusal contains counts."""


def check_request(plan: Plan, request: JobRequest) -> Finding:
    """Check that sbatch would accept a job request; nothing is submitted."""
    text = script(plan.study, plan.cluster, request)
    return _check_script("request", f"{request.shape}", text)


def check_followup(plan: Plan) -> Finding:
    """Check that sbatch would accept the follow-up job."""
    return _check_script(
        "follow-up", "the follow-up job", followup_script(plan, jobs=())
    )


def _check_script(about: str, name: str, text: str) -> Finding:
    """Check that sbatch would accept a script."""
    try:
        done = ask_sbatch(text)
    except (OSError, subprocess.TimeoutExpired) as error:
        timed_out = isinstance(error, subprocess.TimeoutExpired)
        reason = f"no answer within {ASK_TIMEOUT_S} s" if timed_out else str(error)
        return warning(about, f"sbatch --test-only: {reason}", ASK_SUPPORT)
    answer = "; ".join(
        line.strip() for line in done.stderr.splitlines() if line.strip()
    )
    if done.returncode:
        remedies = (remedy for word, remedy in _REMEDIES if word in answer.lower())
        remedy = next(remedies, "plan --all shows the script that sbatch rejects")
        return problem(about, f"sbatch rejects {name}: {answer}", remedy)
    match = ACCEPTED.search(answer)
    start = (
        f"it could start at {match[1]} on {match[2]} ({match[3]})" if match else answer
    )
    return ok(about, f"sbatch accepts {name}: {start}")


PYTHON_TIMEOUT_S = 90  # the first start of a container reads its image

_VERSIONS = """\
import json, platform
from importlib.metadata import PackageNotFoundError, version
versions = {"python": platform.python_version()}
for name in ("hpml-jobs", "torch", "torchvision"):
    try:
        versions[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(versions))
"""
"""Program for the jobs' Python; it does not import torch, which takes seconds."""


def mounts() -> str:
    """Return the table of this machine's mounts."""
    return Path("/proc/self/mounts").read_text()


NODES_MAY_DIFFER = "the nodes may have it: doctor asks one of them"

_NETWORK = re.compile(
    r"nfs|lustre|gpfs|beegfs|ceph|wekafs|panfs|pvfs|orangefs|gluster|cifs|smb|9p|afs"
)
"""Types of file systems that nodes share with this machine."""


def _is_of_nodes(path: Path, outputs: Path) -> bool:
    """Return whether nodes have what this machine has at a path, as they have the studies."""
    place, kind = _mount_of(path.absolute())
    return place == _mount_of(outputs.absolute())[0] or bool(_NETWORK.search(kind))


def _mount_of(path: Path) -> tuple[str, str]:
    """Return the deepest mount point that contains a path, and the type of its file system."""
    place, kind = "/", "unknown"
    for line in mounts().splitlines():
        _, mounted, mounted_kind, *_ = line.split()
        if path.is_relative_to(mounted) and len(mounted) >= len(place):
            place, kind = mounted, mounted_kind
    return place, kind


def _absent(about: str, observed: str, remedy: str, *, is_sure: bool) -> Finding:
    """Return a problem; a warning where only a node can tell."""
    if is_sure:
        return problem(about, observed, remedy)
    return warning(about, observed, NODES_MAY_DIFFER)


def check_container(cluster: Cluster, outputs: Path) -> list[Finding]:
    """Check that image, overlay and runtime of the container are available; none without one."""
    container = cluster.container
    if container.image is None:
        return []
    findings = [*_unreadable_files(container, outputs)]
    if shutil.which(container.runtime) is None:
        findings.append(
            warning(
                "container",
                f"{container.runtime} is not on PATH here",
                "if the nodes do not have it either, set cluster.container.runtime=",
            )
        )
    overlay = f" with {container.overlay}" if container.overlay else ""
    observed = f"{container.runtime} runs {container.image}{overlay}"
    return findings or [ok("container", observed)]


def _unreadable_files(container: Container, outputs: Path) -> Iterator[Finding]:
    for name, text in (("image", container.image), ("overlay", container.overlay)):
        if text is None or "://" in text or os.access(text, os.R_OK):
            continue
        path = Path(text)
        fault = "cannot be read" if path.exists() else "does not exist"
        remedy = f"correct cluster.container.{name}=PATH"
        is_sure = _is_of_nodes(path, outputs)
        yield _absent("container", f"{name} {text} {fault}", remedy, is_sure=is_sure)


def check_python(cluster: Cluster, outputs: Path) -> list[Finding]:
    """Check that the jobs' Python runs, and has this version of hpml_jobs and torch.

    With cluster.setup, or of a Python that only this machine has, a fault is a warning.
    """
    if (
        cluster.container.image is not None
        and shutil.which(cluster.container.runtime) is None
    ):
        return []  # already reported; the diagnostic job checks it on the node
    command, where, is_sure = _python_of_jobs(cluster, outputs)
    try:
        done = subprocess.run(
            [*command, "-c", _VERSIONS],
            capture_output=True,
            text=True,
            timeout=PYTHON_TIMEOUT_S,
            check=False,
        )
        versions: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        lines = (
            []
            if isinstance(error, OSError | subprocess.TimeoutExpired)
            else [done.stderr]
        )
        reason = (" ".join(lines).strip().splitlines() or [str(error)])[-1]
        is_sure &= not isinstance(error, subprocess.TimeoutExpired)
        observed = f"{where} does not run: {reason}"
        remedy = "set cluster.python=PATH to a Python that the jobs can run"
        return [_absent("python", observed, remedy, is_sure=is_sure)]
    runs = ok("python", f"{where}, Python {versions['python']}")
    return [runs, _check_versions(versions, where, is_sure=is_sure)]


def _python_of_jobs(cluster: Cluster, outputs: Path) -> tuple[list[str], str, bool]:
    """Return the command of the jobs' Python, its name, and whether a fault of it is sure."""
    if cluster.is_local:
        return [sys.executable], sys.executable, True
    command, is_sure = cluster.python_command(sys.executable), not cluster.setup
    if cluster.container.image is not None:
        return command, cluster.python or "the container's", is_sure
    if cluster.python is None:
        return command, sys.executable, is_sure
    path = Path(shutil.which(cluster.python) or cluster.python)
    return command, cluster.python, is_sure and _is_of_nodes(path, outputs)


def _check_versions(versions: dict[str, str], where: str, *, is_sure: bool) -> Finding:
    observed = ", ".join(
        f"{name} {text}" for name, text in versions.items() if name != "python"
    )
    if versions.get("hpml-jobs") != VERSION:
        installed = observed or "no hpml-jobs and no torch"
        return _absent(
            "versions",
            f"{where} has {installed}; this is hpml-jobs {VERSION}",
            f"install hpml-jobs {VERSION} there",
            is_sure=is_sure,
        )
    missing = [name for name in ("torch", "torchvision") if name not in versions]
    if missing:
        return _absent(
            "versions",
            f"{where} has {observed}; no {' and no '.join(missing)}",
            "pip install -r locks/worker.txt there, or set cluster.python= or a container",
            is_sure=is_sure,
        )
    return ok("versions", observed)
