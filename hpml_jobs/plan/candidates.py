"""The words `gpus=auto`, `batch=auto` and `repeats=auto`: the values among which they choose."""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig

from hpml_jobs.core.cluster import Launcher
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.formulas import MOST_LAUNCHES
from hpml_jobs.core.strategies import Device
from hpml_jobs.plan import machine
from hpml_jobs.plan.auto import Goal
from hpml_jobs.plan.settings import Settings
from hpml_jobs.slurm import commands

AUTO_WORDS = ("gpus=auto", "batch=auto", "repeats=auto")

BATCHES = (32, 128, 512, 2048, 8192, 32768)
"""Batches per GPU; of those above a GPU's share of the data there is no cell."""

AT_ONCE = 3
"""Batches of one job: to queue again takes longer than to measure a batch too many."""


def refuse_sweeps(
    asked: Sequence[str], blocks: Sequence[Mapping[str, Sequence[Any]]], grid: str
) -> None:
    """Refuse what `auto` does not choose, but the command line sweeps.

    Raises:
        UsageError: a grid, a global batch, or several values of another key than gpus and batch.
    """
    typed = f"{asked[0]}=auto"
    if grid:
        raise UsageError(
            f"{typed} with grid={grid}: a grid names its cells; leave one out"
        )
    (values,) = blocks
    if "max_gpus" in values and "gpus" not in asked:
        raise UsageError(f"{typed} with max_gpus=: only gpus=auto has it; leave it out")
    for key, options in values.items():
        if key in asked:
            raise UsageError(f"{key} is given twice")
        if key == "global_batch":
            raise UsageError(f"{typed} with global_batch=: give batch= or batch=auto")
        if key == "repeats":
            raise UsageError(f"{typed} with repeats=: leave it out, or repeats=auto")
        if len(options) > 1 and key not in ("gpus", "batch"):
            raise UsageError(
                f"{typed} with several values of {key}=: it chooses GPUs and batch of one; submit "
                "a study for each"
            )


def candidates(
    asked: Collection[str],
    config: DictConfig,
    device: Device,
    values: Mapping[str, Sequence[Any]],
) -> dict[str, list[int]]:
    """Return the values of each key that is `auto`; `values` are those of the other keys."""
    ranges = {}
    if "gpus" in asked:
        (most,) = values.get("max_gpus", [config.max_gpus])
        (gpu_type,) = values.get("gpu_type", [config.gpu_type])
        ranges["gpus"] = sizes(most or _gpus_of_node(config, device, gpu_type))
    if "batch" in asked:
        ranges["batch"] = [*BATCHES]
    if "repeats" in asked:
        ranges["repeats"] = [MOST_LAUNCHES]
    return ranges


def sizes(most: int) -> list[int]:
    """Return the powers of two up to a number, and the number.

    >>> sizes(8), sizes(6)
    ([1, 2, 4, 8], [1, 2, 4, 6])
    """
    powers = {2**n for n in range(most.bit_length())}
    return sorted(powers | {most})


def _gpus_of_node(config: DictConfig, device: Device, gpu_type: str | None) -> int:
    """Return the GPUs of the largest node; on a CPU here its cores.

    Raises:
        UsageError: they are not known.
    """
    cluster = config.cluster
    if cluster.get("launcher") == Launcher.LOCAL and not cluster.get("hosts"):
        cpus = len(os.sched_getaffinity(0)) // config.threads
        return cpus if device is Device.CPU else len(machine.local_gpus()) or 1
    of_types = cluster.get("gpu_types") or {}
    of_nodes = [node.gpus for node in commands.inventory() if not of_types]
    known = [of_types[gpu_type]] if gpu_type in of_types else of_types.values()
    most = max([*known, *of_nodes], default=0)
    if device is Device.CPU or not most:
        raise UsageError("gpus=auto: give the most that it may use, e.g. max_gpus=8")
    return int(most)


def goal_of(asked: Collection[str], settings: Settings) -> Goal:
    """Return what `auto` is to find with these settings.

    Raises:
        UsageError: it is to measure cells again.
    """
    if settings.rerun:
        raise UsageError("rerun=true with auto: name the sizes, e.g. gpus=1,2 batch=64")
    return Goal(
        min_efficiency=settings.min_efficiency,
        gpu_hours=settings.gpu_hours,
        batches_at_once=1 if settings.cluster.is_local else AT_ONCE,
        repeats="repeats" in asked,
    )
