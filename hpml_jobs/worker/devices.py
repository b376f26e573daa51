"""The devices of a rank: exactly those that the cell needs, or an error.

`python -m hpml_jobs.worker.devices CELL_FOLDER ATTEMPT_ID RANK COMMAND` checks those of a script.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import torch

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.environment import refusal
from hpml_jobs.core.errors import HpmlError, NodeFaultError
from hpml_jobs.core.gpus import is_mig, node_fault
from hpml_jobs.core.strategies import Device
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.worker.failure import describe, write_report
from hpml_jobs.worker.instruments.facts import slurm_variables
from hpml_jobs.worker.instruments.timing import Devices

NEWER_LOCK = "locks/worker.txt"
OLDER_LOCK = "locks/worker-cuda12.txt"
"""torch 2.7.1 + torchvision 0.22.1, for V100 and for older drivers."""

IDLE_BYTES = 2_000_000_000
"""Memory in use on an idle GPU at most: CUDA's context and the display."""

TIMEOUT_S = 30.0
"""How long to wait for a GPU that another process still occupies."""


def devices_for(cell: Cell, local_rank: int) -> Devices:
    """Return this rank's devices: all of the cell with dp, else one.

    Raises:
        HpmlError: as `check_devices`. There is no fallback.
    """
    numbers = (local_rank,) if cell.strategy.under_torchrun else range(cell.gpus)
    check_devices(cell, numbers)
    if cell.device is Device.CPU:
        return (torch.device("cpu"),)
    torch.cuda.set_device(numbers[0])
    return tuple(torch.device("cuda", number) for number in numbers)


def check_devices(cell: Cell, numbers: Iterable[int]) -> None:
    """Refuse an environment in which a cell, or a script, would not be measured as others are.

    `numbers` are the GPUs to check; each is awaited until the previous cell has left it.

    Raises:
        HpmlError: no CUDA, too few GPUs or those of others, another GPU type, a GPU in use, or an
            environment that changes what is measured.
    """
    refused = refusal(os.environ, cell.device, communicates=cell.processes > 1)
    if refused:
        raise HpmlError(refused)
    if cell.device is Device.CPU:
        return
    if not torch.cuda.is_available():
        raise HpmlError(f"device=cuda, but torch sees no CUDA device: {why_no_cuda()}")
    allocation: dict[str, str] = {}
    with suppress(ValueError, AttributeError):  # damaged: the facts say so
        allocation = slurm_variables()
    check_number(cell.gpus_per_node, torch.cuda.device_count(), allocation)
    for number in numbers:
        _check_gpu(number, cell.gpu_type)
        await_free(number)


def check_number(needed: int, visible: int, allocation: Mapping[str, str]) -> None:
    """Refuse fewer GPUs on this node than a cell needs, and GPUs that were given to others.

    Torch numbers the visible GPUs from 0, and the cell takes the first ones. That they are the
    job's own is certain only if SLURM hides the others.

    Raises:
        HpmlError: with the numbers, and what to do.
    """
    first = torch.cuda.get_device_name(0) if visible else ""
    if needed > 1 and is_mig(first):
        raise HpmlError(
            f"the cell needs {needed} GPU(s) on this node, but has instances of a divided one "
            f"({first}), of which a process sees one: use gpus=1, or request whole GPUs"
        )
    if visible < needed:
        raise HpmlError(
            f"the cell needs {needed} GPU(s) on this node, but torch sees {visible}: "
            "check the job's GPUs (scontrol show job) and CUDA_VISIBLE_DEVICES"
        )
    number = allocation.get("SLURM_GPUS_ON_NODE", "")
    allocated = int(number) if number.isdigit() else None
    if allocated is not None and allocated < needed:
        raise HpmlError(
            f"the cell needs {needed} GPU(s) on this node, but SLURM gave {allocated} of the "
            f"{visible} that torch sees: check the job's GPUs (scontrol show job)"
        )
    if allocated is not None and visible > allocated:
        _check_own(needed, visible, allocation)


def _check_own(needed: int, visible: int, allocation: Mapping[str, str]) -> None:
    """Refuse GPUs of others: torch sees more than the job's own."""
    ids = allocation.get("SLURM_STEP_GPUS") or allocation.get("SLURM_JOB_GPUS") or ""
    allocated_ids = {int(word) for word in ids.split(",") if word.isdigit()}
    if allocated_ids and not allocated_ids.issuperset(range(needed)):
        raise HpmlError(
            f"SLURM gave GPU {ids} of this node, but nothing hides the others: torch sees "
            f"{visible}, and the cell would use 0 to {needed - 1}; add "
            "cluster.setup=['export CUDA_VISIBLE_DEVICES=${SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}']"
        )


def await_free(
    number: int,
    memory: Callable[[int], tuple[int, int]] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Wait until no other process uses a GPU; the previous cell of a pack may still be ending.

    `memory` returns a GPU's free and total bytes; the default asks CUDA.

    Raises:
        NodeFaultError: it is still in use after `timeout_s`, so that times would be wrong.
    """
    deadline = time.monotonic() + timeout_s
    while used := _use(number, memory or torch.cuda.mem_get_info):
        if time.monotonic() >= deadline:
            raise NodeFaultError(
                f"{used}, still after {timeout_s:g} s: find them with nvidia-smi on the node, then "
                "resubmit"
            )
        time.sleep(min(1.0, timeout_s))


def _use(number: int, memory: Callable[[int], tuple[int, int]]) -> str:
    """Return how other processes use a GPU, in words; empty if they do not."""
    try:
        free, total = memory(number)
    except RuntimeError as error:  # a GPU in the mode for one process has another one
        if not node_fault(str(error)):
            raise
        return f"other processes hold GPU {number} ({str(error).splitlines()[0]})"
    used = total - free
    return (
        f"other processes use {used / 1e9:.1f} GB of GPU {number}"
        if used > IDLE_BYTES
        else ""
    )


def _check_gpu(number: int, gpu_type: str | None) -> None:
    name = torch.cuda.get_device_name(number)
    if gpu_type is not None and not matches_gpu_type(gpu_type, name):
        raise HpmlError(
            f"GPU {number} is a {name}, but the cell needs gpu_type={gpu_type}: check "
            "gpu_type= and the partition"
        )


def matches_gpu_type(gpu_type: str, device_name: str) -> bool:
    """Return whether a device may be what SLURM calls `gpu_type`.

    Every part of the type must consist of consecutive whole words of the device's name; AMD's X
    models match their family. A type without a digit (`volta`) names no model and always matches.

    >>> [matches_gpu_type("rtx8000", "Quadro RTX 8000"), matches_gpu_type("l4", "NVIDIA L40S")]
    [True, False]
    """
    if not re.search(r"\d", gpu_type):
        return True
    words = re.findall(r"[a-z0-9.]+", device_name.lower())
    phrases = {
        "".join(words[start:end])
        for start in range(len(words))
        for end in range(start + 1, len(words) + 1)
    }
    parts = re.findall(r"[a-z0-9.]+", gpu_type.lower())
    return "".join(parts) in phrases or all(
        part in phrases or f"{part}x" in phrases for part in parts
    )


def why_no_cuda() -> str:
    """Return why torch sees no CUDA device, and what to do."""
    torch_cuda = torch.version.cuda
    if torch_cuda is None:
        return (
            f"torch {torch.__version__} is a build without CUDA: install {NEWER_LOCK}"
        )
    return (
        f"torch {torch.__version__} needs a driver of CUDA {torch_cuda}: compare nvidia-smi on the "
        f"node (an older driver needs {OLDER_LOCK}, a container --nv); check the job's GPUs and "
        "CUDA_VISIBLE_DEVICES"
    )


def main(cell_folder: str, attempt_id: str, rank: str, *command: str) -> NoReturn:
    """Become the command of a script if this node's GPUs may be used; else report why, exit with 1.

    `rank` is the first one of this node.
    """
    folder = CellFolder(Path(cell_folder))
    try:
        cell = folder.read().cell
        check_devices(cell, range(cell.gpus_per_node))
    except Exception as error:  # the job's wrapper needs a report of every error
        report = describe(error, int(rank))
        write_report(report, folder.attempt(attempt_id))
        sys.stderr.write(f"rank {rank}: {report.reason}\n")
        sys.exit(1)
    # the driver's files would hold GPU memory
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.execv(command[0], command)  # noqa: S606  (no shell is wanted)


if __name__ == "__main__":
    main(*sys.argv[1:])
