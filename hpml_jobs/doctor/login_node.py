"""Checks on this machine: the folder for studies, the container, the Python of the jobs."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from hpml_jobs import __version__
from hpml_jobs.core.answers import Finding, ok, problem, warning
from hpml_jobs.core.cluster import Cluster, Launcher

LEAST_FREE_GB = 1.0
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


class Mount(NamedTuple):
    """A mount point and the type of its file system."""

    place: Path
    type: str

    @property
    def in_memory(self) -> bool:
        """Whether it is memory of this machine, which no node can read."""
        return self.type in ("tmpfs", "ramfs")


def mount_of(folder: Path, table: str) -> Mount:
    r"""Return the mount that contains a folder, from the text of /proc/self/mounts.

    >>> mount_of(Path("/scratch/me"), "a / ext4 rw 0 0\nb /scratch lustre rw 0 0\n").type
    'lustre'
    """
    rows = [line.split() for line in table.splitlines()]
    mounts = [Mount(Path(row[1].replace("\\040", " ")), row[2]) for row in rows if len(row) > 2]
    containing = [mount for mount in mounts if folder.is_relative_to(mount.place)]
    deepest = max(containing, key=lambda mount: len(mount.place.parts), default=None)
    return deepest or Mount(Path("/"), "unknown")


def check_outputs(folder: Path, cluster: Cluster) -> Finding:
    """Check that studies can be written to the folder, and that it has space."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"doctor")
        free_gb = shutil.disk_usage(existing).free / 1e9
        mount = mount_of(existing, Path("/proc/self/mounts").read_text())
    except OSError as error:
        remedy = "choose a folder that you may write to with outputs=PATH"
        return problem("outputs", f"{folder} cannot be written: {error.strerror}", remedy)
    observed = f"{folder}: writable, {free_gb:,.1f} GB free on {mount.place} ({mount.type})"
    if free_gb < LEAST_FREE_GB:
        return warning(
            "outputs", observed, "free disk space, or choose another folder with outputs=PATH"
        )
    if mount.in_memory and cluster.launcher is Launcher.SLURM:
        remedy = (
            "nodes cannot read this machine's memory: choose outputs=PATH on a shared file system"
        )
        return problem("outputs", observed, remedy)
    return ok("outputs", observed)


def check_container(cluster: Cluster) -> list[Finding]:
    """Check that image, overlay and runtime of the container are available; none without one."""
    container = cluster.container
    if container.image is None:
        return []
    findings = []
    for name, text in (("image", container.image), ("overlay", container.overlay)):
        if text is None or "://" in text:
            continue
        path = Path(os.path.expandvars(text))
        if not os.access(path, os.R_OK):
            fault = "cannot be read" if path.exists() else "does not exist"
            remedy = f"correct cluster.container.{name}=PATH"
            findings.append(problem("container", f"{name} {text} {fault}", remedy))
    if shutil.which(container.runtime) is None:
        remedy = "if the nodes do not have it either, set cluster.container.runtime="
        findings.append(warning("container", f"{container.runtime} is not on PATH here", remedy))
    overlay = f" with {container.overlay}" if container.overlay else ""
    return findings or [ok("container", f"{container.runtime} runs {container.image}{overlay}")]


def check_python(cluster: Cluster) -> list[Finding]:
    """Check that the jobs' Python runs, and has this version of hpml_jobs and torch."""
    if cluster.container.image is not None and shutil.which(cluster.container.runtime) is None:
        return []  # already reported; the diagnostic job checks it on the node
    command = cluster.python_command(sys.executable)
    where = cluster.python or ("the container's" if cluster.container.image else sys.executable)
    if cluster.launcher is Launcher.LOCAL:
        command, where = [sys.executable], sys.executable
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
        lines = [] if isinstance(error, OSError | subprocess.TimeoutExpired) else [done.stderr]
        reason = (" ".join(lines).strip().splitlines() or [str(error)])[-1]
        remedy = "set cluster.python=PATH to a Python that the jobs can run"
        return [problem("python", f"{where} does not run: {reason}", remedy)]
    return [ok("python", f"{where}, Python {versions['python']}"), _check_versions(versions, where)]


def _check_versions(versions: dict[str, str], where: str) -> Finding:
    observed = ", ".join(f"{name} {text}" for name, text in versions.items() if name != "python")
    if versions.get("hpml-jobs") != __version__:
        installed = observed or "no hpml-jobs and no torch"
        both = f"{where} has {installed}; this is hpml-jobs {__version__}"
        return problem("versions", both, f"install hpml-jobs {__version__} there")
    missing = [name for name in ("torch", "torchvision") if name not in versions]
    if missing:
        remedy = "pip install -r locks/worker.txt there, or set cluster.python= or a container"
        return problem("versions", f"{observed}; no {' and no '.join(missing)}", remedy)
    return ok("versions", observed)
