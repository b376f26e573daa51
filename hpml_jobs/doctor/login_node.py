"""What a study needs on this machine: a folder for its records, its container, its Python."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from hpml_jobs import __version__
from hpml_jobs.core.cluster import Cluster, Launcher
from hpml_jobs.core.findings import Finding, ok, problem, warning

LEAST_FREE_GB = 1.0
ANSWER_TIMEOUT_S = 90  # a container's first start reads its image

_VERSIONS = """\
import json, platform
from importlib.metadata import PackageNotFoundError, version
found = {"python": platform.python_version()}
for name in ("hpml-jobs", "torch", "torchvision"):
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""
"""Asked of the jobs' Python without importing torch, which takes seconds."""


class Mount(NamedTuple):
    """Where a file system is mounted, and of what type it is."""

    place: Path
    type: str

    @property
    def in_memory(self) -> bool:
        """Whether it is this machine's memory: no node sees it, and it is empty after a restart."""
        return self.type in ("tmpfs", "ramfs")


def mount_of(folder: Path, table: str) -> Mount:
    r"""The mount that a folder lies on, by /proc/self/mounts.

    >>> mount_of(Path("/scratch/me"), "a / ext4 rw 0 0\nb /scratch lustre rw 0 0\n").type
    'lustre'
    """
    rows = [line.split() for line in table.splitlines()]
    places = [Mount(Path(row[1].replace("\\040", " ")), row[2]) for row in rows if len(row) > 2]
    above = [mount for mount in places if folder.is_relative_to(mount.place)]
    found = max(above, key=lambda mount: len(mount.place.parts), default=None)
    return found or Mount(Path("/"), "unknown")


def outputs(folder: Path, cluster: Cluster) -> Finding:
    """Studies can be written to the folder, and there is room."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"doctor")
        free_gb = shutil.disk_usage(there).free / 1e9
        mount = mount_of(there, Path("/proc/self/mounts").read_text())
    except OSError as fault:
        remedy = "give a folder that you may write to: outputs=PATH"
        return problem("outputs", f"{folder} cannot be written: {fault.strerror}", remedy)
    seen = f"{folder}: writable, {free_gb:,.1f} GB free on {mount.place} ({mount.type})"
    if free_gb < LEAST_FREE_GB:
        return warning("outputs", seen, "a study may not fit: make room, or outputs=PATH")
    if mount.in_memory and cluster.launcher is Launcher.SLURM:
        remedy = "nodes do not see this machine's memory: outputs=PATH on a shared file system"
        return problem("outputs", seen, remedy)
    return ok("outputs", seen)


def container(cluster: Cluster) -> list[Finding]:
    """The image and its overlay can be read, and what runs them is here; nothing without one."""
    box = cluster.container
    if box.image is None:
        return []
    found = []
    for name, text in (("image", box.image), ("overlay", box.overlay)):
        if text is None or "://" in text:
            continue
        path = Path(os.path.expandvars(text))
        if not os.access(path, os.R_OK):
            why = "may not be read" if path.exists() else "is not there"
            key = f"correct cluster.container.{name}=PATH"
            found.append(problem("container", f"{name} {text} {why}", key))
    if shutil.which(box.runtime) is None:
        remedy = "the nodes may have it (the job tells); else cluster.container.runtime="
        found.append(warning("container", f"{box.runtime} is not on PATH here", remedy))
    overlay = f" with {box.overlay}" if box.overlay else ""
    return found or [ok("container", f"{box.runtime} runs {box.image}{overlay}")]


def python(cluster: Cluster) -> list[Finding]:
    """The jobs' Python is there, with our version and a torch; asked as a job starts it."""
    if cluster.container.image is not None and shutil.which(cluster.container.runtime) is None:
        return []  # said already; the job will tell
    command = cluster.python_command(sys.executable)
    where = cluster.python or ("the container's" if cluster.container.image else sys.executable)
    if cluster.launcher is Launcher.LOCAL:
        command, where = [sys.executable], sys.executable
    try:
        done = subprocess.run(
            [*command, "-c", _VERSIONS],
            capture_output=True,
            text=True,
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
        found: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as fault:
        lines = [] if isinstance(fault, OSError | subprocess.TimeoutExpired) else [done.stderr]
        said = (" ".join(lines).strip().splitlines() or [str(fault)])[-1]
        return [problem("python", f"{where} does not run: {said}", "cluster.python=PATH")]
    return [ok("python", f"{where}, Python {found['python']}"), _versions(found, where)]


def _versions(found: dict[str, str], where: str) -> Finding:
    seen = ", ".join(f"{name} {text}" for name, text in found.items() if name != "python")
    if found.get("hpml-jobs") != __version__:
        there = f"{where} has {seen or 'none of our packages'}; here is hpml-jobs {__version__}"
        return problem("versions", there, f"install hpml-jobs {__version__} there: one version")
    missing = [name for name in ("torch", "torchvision") if name not in found]
    if missing:
        remedy = "pip install -r locks/worker.txt there, or cluster.python=, or a container"
        return problem("versions", f"{seen}; no {' and no '.join(missing)}", remedy)
    return ok("versions", seen)
