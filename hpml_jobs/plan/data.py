"""Data sets on the login node: where they are, what they have, and the download."""

import os
import platform
import subprocess
import sys
from collections.abc import Container
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hpml_jobs.core.answers import NO_TORCH_CODE, Counts
from hpml_jobs.core.built_in import DATASETS
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.data_files import BYTE_DATA, FOLDER, IMAGE_FOLDER, TEXT
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.paths import resolve_path
from hpml_jobs.core.text_data import data_digest, text_files, total_bytes, windows
from hpml_jobs.core.workload import Workload
from hpml_jobs.plan import rules
from hpml_jobs.plan.settings import Notify

PREPARE_TIMEOUT_S = 3600

_NOT_STARTED_CODES = (126, 127, 255)
"""Exit codes of a shell without the command, and of a container runtime without its image."""


def data_root(given: str | None, cluster: Cluster) -> Path:
    """Return the folder of the data sets: given, the cluster's, $SCRATCH/data, or ./data."""
    scratch = os.environ.get("SCRATCH")
    root = given or cluster.data_root or (f"{scratch}/data" if scratch else "data")
    return resolve_path(root)


def with_facts(
    workload: Workload,
    root: Path,
    cluster: Cluster,
    given: Container[str],
    notify: Notify,
) -> Workload:
    """Return the workload with what its data and its built-in model determine.

    These are the classes and images of a folder, the windows of a text, and the number of
    parameters. `given` are the keys that the user set: they must agree, others follow.

    Raises:
        HpmlError: the folder is missing or damaged.
        UsageError: a given number is not that of the data or the model; both are named.
    """
    rules.refuse(rules.RULES_OF_WORKLOAD, workload)
    rules.refuse([rules.tokens_have_no_image_keys], workload, given)
    without_unit = replace(workload, unit=None)
    if without_unit.throughput_unit is workload.unit:  # it follows from the data
        workload = without_unit
    if workload.data == IMAGE_FOLDER:
        from hpml_jobs.plan.image_folder import with_images  # noqa: PLC0415

        workload = with_images(workload, root, cluster, given, notify)
    elif workload.data in BYTE_DATA:
        workload = _with_windows(workload, root, cluster, given, notify)
    workload = replace(workload, data_sha256=data_digest(workload.data, root))
    return _with_parameters(workload, given)


def _with_windows(
    workload: Workload,
    root: Path,
    cluster: Cluster,
    given: Container[str],
    notify: Notify,
) -> Workload:
    """Return the workload with the windows of its text; the library is that of the jobs' Python.

    Raises:
        HpmlError: there is no text.
        UsageError: no window fits, or another number of windows was given.
    """
    is_here = cluster.python_command(sys.executable) == [sys.executable]
    images = workload.images
    if is_here or workload.data == FOLDER:
        images = _count_windows(workload, root, notify)
    else:
        try:
            images = prepare(workload, root, cluster).images
        except NotStartedError as error:
            if images is None:
                raise NotStartedError(f"{error}, or give workload.images=") from error
    if "workload.images" in given and workload.images not in (None, images):
        raise UsageError(
            f"workload.images={workload.images}: workload.data={workload.data} has {images:,} "
            "windows; use data.limit= to train on fewer"
        )
    return replace(workload, images=images)


def _count_windows(workload: Workload, root: Path, notify: Notify) -> int:
    """Return the windows of training text, by the sizes of its files.

    Raises:
        HpmlError: there is no text.
        UsageError: no window fits in the training text or in the held-out text.
    """
    files = text_files(workload.data, root)
    context = workload.context or 1
    parts = {"training": files.train, "held-out": files.test}
    sizes = {name: total_bytes(of_part) for name, of_part in parts.items() if of_part}
    for name, size in sizes.items():
        if windows(size, context) < 1:
            remedy = (
                f"use workload.context={size - 1} or less" if size > 1 else "add text"
            )
            raise UsageError(
                f"workload.context={context} is longer than the {name} text of "
                f"workload.data={workload.data} ({size:,} bytes); {remedy}"
            )
    is_library = workload.data == TEXT
    where = (
        f"Python {platform.python_version()}'s standard library"
        if is_library
        else str(root)
    )
    texts = [f"{size:,} bytes of {name} text" for name, size in sizes.items()]
    number = windows(sizes["training"], context)
    notify(
        f"{where}: {', '.join(texts)}; {number:,} windows of {context} tokens per epoch"
    )
    return number


class NotStartedError(HpmlError):
    """The Python of the jobs has no torch on this machine, or cannot be started here."""


def resolve_workload(
    workload: Workload, root: Path, cluster: Cluster, *, fetch: bool, notify: Notify
) -> Workload:
    """Return the workload with its number of images; with the user's code they are counted before.

    With `fetch`, missing data is downloaded by a worker process; else it is announced.

    Raises:
        HpmlError: the data is not there; the message names the command to type.
    """
    dataset = DATASETS.get(workload.data)
    if dataset is not None and dataset.is_missing(root):
        if fetch:
            notify(
                f"downloading {dataset.title} into {root}, once (jobs never download)"
            )
            prepare(workload, root, cluster, download=True)
        else:
            notify(f"{dataset.title} is not in {root}: a submission downloads it")
    images = workload.images
    if dataset is not None and dataset.images is not None and not workload.own_code:
        images = dataset.images  # it always has as many
    if not images:
        raise UsageError(
            f"workload.data={workload.data} has no training {workload.samples_name}; set "
            "workload.images="
        )
    if workload.units_per_sample is None:
        raise UsageError(
            "workload.unit=tokens: the number of tokens of a sample is not known; set "
            "workload.context="
        )
    used = min(workload.limit or images, images)
    limit = used if used < images else None
    return replace(workload, images=used, limit=limit)


def _with_parameters(workload: Workload, given: Container[str]) -> Workload:
    """Return the workload with its model's parameters, unless it claims none (null)."""
    parameters = workload.built_in_parameters
    if parameters is None or workload.parameters is None:
        return workload
    if "workload.parameters" in given and workload.parameters != parameters:
        size = "of this shape" if workload.shape else f"with {workload.classes} classes"
        raise UsageError(
            f"workload.parameters={workload.parameters:,}: workload.model={workload.model} {size} "
            f"has {parameters:,}; leave workload.parameters= out"
        )
    return replace(workload, parameters=parameters)


def prepare(
    workload: Workload,
    root: Path,
    cluster: Cluster,
    *,
    download: bool = False,
    as_tensors: bool = False,
) -> Counts:
    """Let a worker process open or download the data, and build the model.

    `as_tensors`: the data set must offer its images as tensors (loader=device).

    Raises:
        NotStartedError: the Python of the jobs has no torch here, or cannot be started.
        HpmlError: with the worker's own line, and for a download the command to type.
    """
    command = [
        *cluster.python_command(sys.executable),
        *("-m", "hpml_jobs.worker.prepare"),
        *("--workload", msgspec.json.encode(workload).decode()),
        *("--data-root", str(root)),
        *("--code-root", str(Path.cwd())),
        *(["--as-tensors"] if as_tensors else []),
        *(["--download"] if download else []),
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=PREPARE_TIMEOUT_S,
        )
    except OSError as error:
        raise NotStartedError(
            f"{command[0]} could not open the data: {error}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise HpmlError(f"{command[0]} could not open the data: {error}") from error
    if done.returncode != 0:
        raise _failure(workload, root, done, download=download)
    return _counts(workload, done.stdout)


def _counts(workload: Workload, printed: str) -> Counts:
    """Return what the process says in its last line."""
    if not printed.strip():
        raise HpmlError(
            f"{workload.name}: your code ended the process before a job could train (os._exit?): "
            "remove the call"
        )
    try:
        return msgspec.json.decode(printed.strip().splitlines()[-1], type=Counts)
    except msgspec.MsgspecError as error:
        raise HpmlError(f"{workload.name}: prepare printed {printed!r}") from error


def _failure(
    workload: Workload,
    root: Path,
    done: "subprocess.CompletedProcess[str]",
    *,
    download: bool,
) -> HpmlError:
    """Return the error that names why the worker process failed, and what to do."""
    code = done.returncode
    lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
    reason = lines[-1] if lines else f"exit code {code}"
    if code == NO_TORCH_CODE:
        reason = "this Python has no torch (set cluster.python= or a container to the jobs' Python)"
    remedy = ""
    if download:
        remedy = (
            f"; without internet here, copy the data set into {root} (torchvision's "
            "CIFAR10(root, download=True) writes it elsewhere)"
        )
    kind = (
        NotStartedError if code in (NO_TORCH_CODE, *_NOT_STARTED_CODES) else HpmlError
    )
    return kind(f"{workload.name}: {reason}{remedy}")
