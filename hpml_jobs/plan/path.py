"""`path=auto`: the keys of the training path and the loader that a type of GPU is given."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from hpml_jobs.checks.gpu_peaks import half_precision
from hpml_jobs.core.built_in import DATASETS, MODELS, TOKEN_DATA
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.data_files import TEXT
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.strategies import Device, Loader, Sharded
from hpml_jobs.core.workload import Workload
from hpml_jobs.plan.cells import CellDraft
from hpml_jobs.plan.loader import gpu_name
from hpml_jobs.plan.settings import Notify, PathChoice, Settings

RESIDENT_BYTES = 2e9
"""Data up to this size lie on the GPU with path=auto: a small part of any card's memory."""

BYTES_PER_TOKEN = 16
"""A token of a window and its target, as loader=device stores them."""


def with_path(draft: CellDraft, cluster: Cluster, notify: Notify) -> CellDraft:
    """Return the draft with the keys that `path=auto` becomes; keys that are given stay.

    Raises:
        UsageError: the precision of the GPU is not known and none is given.
    """
    settings, cell = draft.settings, draft.cell
    if settings.path is PathChoice.PLAIN:
        return draft
    if cell.device is Device.CPU:
        notify("path=auto with device=cpu is path=plain")
        return draft
    gpu = gpu_name(draft.gpu_type, cluster)
    keys = _chosen(settings, cell, gpu)
    loader = _loader(settings)
    words = [
        f"{key}={msgspec.to_builtins(value)}".lower() for key, value in keys.items()
    ]
    if loader is not cell.loader:
        words.append(f"loader={loader.value}")
    notify(f"path=auto on {gpu or 'this GPU'}: {' '.join(words) or 'the given keys'}")
    return draft.with_cell(
        path=replace(cell.path, **keys),
        loader=loader,
        loader_workers=0 if loader is Loader.DEVICE else cell.loader_workers,
    )


def origins_of_path(
    before: Iterable[CellDraft], after: Iterable[CellDraft]
) -> dict[str, str]:
    """Return the origin of the keys that `path=auto` has set in some drafts."""
    return {
        key: "path=auto"
        for draft, with_keys in zip(before, after, strict=True)
        for key, value in _values(with_keys.cell).items()
        if value != _values(draft.cell)[key]
    }


def _values(cell: Cell) -> dict[str, Any]:
    return {
        "precision": cell.path.precision,
        "channels_last": cell.path.channels_last,
        "loader": cell.loader,
        "loader_workers": cell.loader_workers,
    }


def _chosen(settings: Settings, cell: Cell, gpu: str | None) -> dict[str, Any]:
    """Return the keys of the training path that are not given, as the GPU and the cell allow."""
    chosen: dict[str, Any] = {}
    if settings.precision is None:
        precision = half_precision(gpu) if gpu else None
        if precision is None:
            raise UsageError(
                f"path=auto: the precision of the GPU ({gpu or 'type not known'}) is not known; "
                "give precision=bf16 (compute capability 8.0 or higher), fp16 (7.x) or fp32"
            )
        chosen["precision"] = precision
    is_image_model = (
        cell.workload.model in MODELS and cell.workload.data not in TOKEN_DATA
    )
    replicates = cell.strategy.traffic.shards is Sharded.NOTHING
    if settings.channels_last is None and replicates and is_image_model:
        chosen["channels_last"] = True
    return chosen


def _loader(settings: Settings) -> Loader:
    """Return the given loader; else the device's where the data are known to fit."""
    if settings.loader is not None:
        return settings.loader
    size = _bytes_of(settings.workload)
    if settings.loader_workers is not None or size is None or size > RESIDENT_BYTES:
        return Loader.WORKERS
    return Loader.DEVICE


def _bytes_of(workload: Workload) -> float | None:
    """Return the bytes of a data set on the device; None where no one knows them before a job.

    >>> _bytes_of(Workload(name="w", model="resnet18_cifar", data="cifar10"))
    153600000
    """
    images = workload.images_if_known
    if workload.data == TEXT:
        return 0.0  # about a megabyte
    if workload.data not in DATASETS or images is None:
        return None
    if workload.data in TOKEN_DATA:
        return float(images * (workload.context or 0) * BYTES_PER_TOKEN)
    return images * 3 * workload.image_size**2
