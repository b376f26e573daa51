"""The user's functions before submission: their files and commit, counts, and a tried batch."""

import hashlib
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from hpml_jobs import __version__
from hpml_jobs.core.answers import Counts
from hpml_jobs.core.built_in import Unit
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import user_folder
from hpml_jobs.core.source_files import source_files, without
from hpml_jobs.core.workload import SourceFile, Workload
from hpml_jobs.plan import data
from hpml_jobs.plan.data import NotStartedError, TrialRequest
from hpml_jobs.plan.settings import Notify

_ON_A_NODE = "hpml-jobs doctor tries one on a node"


def examined(
    workload: Workload,
    root: Path,
    cluster: Cluster,
    trial: TrialRequest,
    notify: Notify,
) -> Workload:
    """Return the workload with its source files and, by running the functions, its counts.

    The batches of `trial` are tried, unless they were before.

    Raises:
        HpmlError: a function raises or does not return what it should, or cannot be run here.
    """
    code = source_files(workload.own_code, Path.cwd(), notify)
    workload = replace(workload, code=code)
    python = cluster.python_command(sys.executable)
    mark = _mark([__version__, workload, str(root), python, trial]) if code else None
    wanted = trial._replace(batches=()) if mark and mark.exists() else trial
    try:
        counts = data.prepare(workload, root, cluster, trial=wanted)
    except NotStartedError as error:
        counts = _given_counts(workload, error)
        notify(f"{error}; your code was not tried: {_ON_A_NODE}")
    if counts.untried:
        notify(
            f"{workload.name}: no batch was tried here: {counts.untried}; {_ON_A_NODE}"
        )
    elif mark and wanted.batches and counts.parameters is not None:
        with suppress(OSError):  # without the mark, they are tried again
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
    return replace(
        workload,
        images=counts.images,
        parameters=counts.parameters,
        context=_context(workload, counts),
        imported=without(counts.imported, code),
    )


def _mark(facts: list[Any]) -> Path:
    """Return the file that says that batches were trained, named by what that depends on."""
    digest = hashlib.sha256(msgspec.json.encode(facts)).hexdigest()
    return user_folder("XDG_CACHE_HOME", "~/.cache") / "tried" / digest


def _context(workload: Workload, counts: Counts) -> int | None:
    """Return the tokens of a sample, where it has tokens.

    Raises:
        UsageError: the user gave another number than the data has.
    """
    counted, given = counts.tokens, workload.context
    if workload.throughput_unit is not Unit.TOKENS or counted is None:
        return given
    if given not in (None, counted):
        raise UsageError(
            f"workload.context={given}: an input of workload.data={workload.data} has {counted} "
            f"tokens; leave workload.context= out, or use workload.context={counted}"
        )
    return counted


def _given_counts(workload: Workload, error: NotStartedError) -> Counts:
    """Return what is known without running the functions.

    Raises:
        NotStartedError: the number of images is not.
    """
    images = workload.images_if_known
    if images is None:
        raise NotStartedError(
            f"{error}, or give workload.images=, and workload.parameters= if you know it"
        ) from error
    return Counts(images=images, effective=images, parameters=workload.parameters)


_GIT_TIMEOUT_S = 10


class WorkingTree(NamedTuple):
    """The commit of a working tree, and whether source files differ from it; None: unknown."""

    commit: str | None = None
    dirty: bool | None = None


def working_tree(folder: Path, files: Iterable[SourceFile]) -> WorkingTree:
    """Return the state of the working tree that a folder is in, of its `files` only.

    Both values are None without files, without git, and outside of a working tree.
    """
    names = [file.name for file in files if (folder / file.name).is_file()]
    commit = _git(folder, "rev-parse", "HEAD") if names else None
    if not commit:
        return WorkingTree()
    status = _git(folder, "status", "--porcelain", "--", *names)
    return WorkingTree(commit.strip(), None if status is None else bool(status.strip()))


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a git command; None if it failed or there is no git."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
