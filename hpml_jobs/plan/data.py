"""Data sets on the login node: where they are, how many images they have, and the download."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.paths import resolve_path
from hpml_jobs.core.source_files import source_files
from hpml_jobs.core.workload import DATASETS, NO_TORCH_CODE, Counts, Workload
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.plan.settings import Settings

_IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
PREPARE_TIMEOUT_S = 3600


def data_root(given: str | None, cluster: Cluster) -> Path:
    """Return the folder of the data sets: given, the cluster's, $SCRATCH/data, or ./data."""
    scratch = os.environ.get("SCRATCH")
    root = given or cluster.data_root or (f"{scratch}/data" if scratch else "data")
    return resolve_path(root)


def resolve_workload(
    workload: Workload, root: Path, cluster: Cluster, *, fetch: bool, notify: Callable[[str], None]
) -> Workload:
    """Return the workload with its number of images.

    With `fetch`, missing data is downloaded by a worker process; else it is announced.

    Raises:
        HpmlError: the data is not there; the message names the command to type.
    """
    dataset = DATASETS.get(workload.data)
    if workload.own_code:
        counts = prepare(workload, root, cluster)
        images: int | None = counts.images
        code = source_files(workload.own_code, Path.cwd())
        workload = msgspec.structs.replace(workload, parameters=counts.parameters, code=code)
    elif dataset is not None:
        images = dataset.images or (count_folder(root) if dataset.on_disk else workload.images)
    else:
        names = ", ".join(DATASETS)
        raise UsageError(f"workload.data={workload.data}: choose one of {names}, or pkg.mod:name")
    if dataset is not None and dataset.is_missing(root):
        if fetch:
            notify(f"downloading {dataset.title} into {root}, once (jobs never download)")
            prepare(workload, root, cluster, download=True)
        else:
            notify(f"{dataset.title} is not in {root}: it would be downloaded before submission")
    if images is None or images < 1:
        raise UsageError(
            f"workload.data={workload.data} has no training images; set workload.images="
        )
    limit = workload.limit if workload.limit and workload.limit < images else None
    return msgspec.structs.replace(workload, images=limit or images, limit=limit)


def fetch(settings: Settings, notify: Callable[[str], None]) -> None:
    """Download the data set of a workload, if it is one to download and is not there."""
    workload = settings.workload
    root = data_root(settings.data.root, settings.cluster)
    dataset = DATASETS.get(workload.data)
    if dataset is None or not dataset.downloaded:
        notify(f"workload={workload.name} (data {workload.data}): nothing to download")
    elif not dataset.is_missing(root):
        notify(f"{dataset.title} is already in {root}")
    else:
        notify(f"downloading {dataset.title} into {root}")
        prepare(workload, root, settings.cluster, download=True)


def count_folder(root: Path) -> int:
    """Return the number of images in root/train/CLASS/**, as torchvision's ImageFolder counts."""
    train = root / "train"
    if not train.is_dir():
        raise HpmlError(
            f"data.root={root} has no folder train; workload.data=folder needs train/CLASS/IMAGE "
            "(and test/CLASS/IMAGE)"
        )
    classes = [path for path in train.iterdir() if path.is_dir()]
    count = sum(
        file.lower().endswith(_IMAGE_ENDINGS)
        for folder in classes
        for _, _, files in os.walk(folder, followlinks=True)
        for file in files
    )
    if not count:
        raise HpmlError(f"data.root={root}: no images in {train}/CLASS")
    return count


def prepare(workload: Workload, root: Path, cluster: Cluster, *, download: bool = False) -> Counts:
    """Let a worker process open or download the data and build the model: it has torch.

    Raises:
        HpmlError: with the worker's own line, and for a download the command to type.
    """
    command = [
        *cluster.python_command(sys.executable),
        *("-m", "hpml_jobs.worker.prepare"),
        *("--workload", msgspec.json.encode(workload).decode()),
        *("--data-root", str(root), "--code-root", str(Path.cwd())),
        *(["--download"] if download else []),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PREPARE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HpmlError(f"{command[0]} could not open the data: {error}") from error
    if done.returncode != 0:
        remedy = (
            "; on a machine with internet and the jobs' Python, run: hpml-jobs fetch "
            f"workload={workload.name} data.root={shlex.quote(str(root))}"
        )
        reason = _failure_reason(done.returncode, done.stderr)
        raise HpmlError(f"{workload.name}: {reason}{remedy if download else ''}")
    try:
        return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=Counts)
    except (IndexError, msgspec.MsgspecError) as error:
        raise HpmlError(f"{workload.name}: prepare printed {done.stdout!r}") from error


def _failure_reason(code: int, stderr: str) -> str:
    if code == NO_TORCH_CODE:
        return "this Python has no torch (set cluster.python= or a container to the jobs' Python)"
    lines = [line for line in stderr.strip().splitlines() if line.strip()]
    return lines[-1] if lines else f"exit code {code}"
