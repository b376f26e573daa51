"""The user's functions before submission: their files and commit, and counts."""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from hpml_jobs.core.answers import Counts
from hpml_jobs.core.built_in import Unit
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.source_files import source_files, without_files
from hpml_jobs.core.workload import SourceFile, Workload
from hpml_jobs.plan import data
from hpml_jobs.plan.data import NotStartedError
from hpml_jobs.plan.settings import Notify

_ON_A_NODE = "hpml-jobs doctor opens the data on a node"


def examined(
    workload: Workload,
    root: Path,
    cluster: Cluster,
    notify: Notify,
    *,
    as_tensors: bool,
) -> Workload:
    """Return the workload with its source files and, by running the functions, its counts.

    `as_tensors`: the data set must offer its images as tensors (loader=device).

    Raises:
        HpmlError: a function raises or does not return what it should, or cannot be run here.
    """
    code = source_files(workload.own_code, Path.cwd(), notify)
    workload = replace(workload, code=code)
    try:
        counts = data.prepare(workload, root, cluster, as_tensors=as_tensors)
    except NotStartedError as error:
        counts = _given_counts(workload, error)
        notify(f"{error}; your code was not run here: {_ON_A_NODE}")
    return replace(
        workload,
        images=counts.images,
        parameters=counts.parameters,
        context=_context(workload, counts),
        imported=without_files(counts.imported, code),
    )


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
    return Counts(images=images, parameters=workload.parameters)


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
