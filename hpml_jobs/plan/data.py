"""Data on the login node: is it there, how many images are in it, and fetching what is missing."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.workload import DATASETS, NO_TORCH_CODE, Counts, Workload
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.plan.settings import Settings

_IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
PREPARE_TIMEOUT_S = 3600


def data_root(asked: str | None, cluster: Cluster) -> Path:
    """Where data sets lie: as asked, else the cluster's, else $SCRATCH/data, else ./data."""
    scratch = os.environ.get("SCRATCH")
    root = asked or cluster.data_root or (f"{scratch}/data" if scratch else "data")
    return Path(os.path.expandvars(root)).expanduser().resolve()


def resolve_workload(
    workload: Workload, root: Path, cluster: Cluster, *, fetch: bool, say: Callable[[str], None]
) -> Workload:
    """The workload with its number of images; missing data is fetched once, by a worker process.

    Raises:
        HpmlError: the data is not there; the message names the command to type.
    """
    dataset = DATASETS.get(workload.data)
    if workload.own_code:
        counts = prepare(workload, root, cluster)
        images: int | None = counts.images
        workload = msgspec.structs.replace(workload, parameters=counts.parameters)
    elif dataset is not None:
        images = dataset.images or (count_folder(root) if dataset.on_disk else workload.images)
    else:
        names = ", ".join(DATASETS)
        raise UsageError(f"workload.data={workload.data}: choose one of {names}, or pkg.mod:name")
    if dataset is not None and dataset.is_missing(root):
        if fetch:
            say(f"fetching {dataset.title} into {root}, once (jobs never download)")
            prepare(workload, root, cluster, download=True)
        else:
            say(f"{dataset.title} is not in {root}: it would be fetched before submission")
    if images is None or images < 1:
        raise UsageError(f"workload.data={workload.data} has no training images; workload.images=?")
    limit = workload.limit if workload.limit and workload.limit < images else None
    return msgspec.structs.replace(workload, images=limit or images, limit=limit)


def fetch(settings: Settings, say: Callable[[str], None]) -> None:
    """`hpml-jobs fetch`: download what a workload needs, by a worker process."""
    workload = settings.workload
    root = data_root(settings.data.root, settings.cluster)
    dataset = DATASETS.get(workload.data)
    if dataset is None or not dataset.downloaded:
        say(f"workload={workload.name} (data {workload.data}): nothing to fetch")
    elif not dataset.is_missing(root):
        say(f"{dataset.title} is in {root} already")
    else:
        say(f"fetching {dataset.title} into {root}")
        prepare(workload, root, settings.cluster, download=True)


def count_folder(root: Path) -> int:
    """Images in root/train/CLASS/**, as torchvision's ImageFolder counts them."""
    train = root / "train"
    if not train.is_dir():
        raise HpmlError(
            f"data.root={root}: no folder train in it; a folder data set is train/CLASS/IMAGE "
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
    """Let a worker process (the job's Python has torch) open or fetch the data, build the model.

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
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=PREPARE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise HpmlError(f"{command[0]} could not open the data: {fault}") from fault
    lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
    if done.returncode != 0:
        reason = lines[-1] if lines else f"exit code {done.returncode}"
        if done.returncode == NO_TORCH_CODE:
            reason = "this Python has no torch (give the job's with cluster.python= or a container)"
        if download:
            reason += (
                "; where the internet and the jobs' Python are, type: hpml-jobs fetch "
                f"workload={workload.name} data.root={shlex.quote(str(root))}"
            )
        raise HpmlError(f"{workload.name}: {reason}")
    try:
        return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=Counts)
    except (IndexError, msgspec.MsgspecError) as fault:
        raise HpmlError(f"{workload.name}: prepare answered {done.stdout!r}") from fault
