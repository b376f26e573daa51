"""The devices of a rank: those the cell asked for, of the kind it asked for, or an error."""

import re
import sys
import time
from collections.abc import Callable

import torch

from hpml_jobs.core.cell import Cell, Device
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.instruments.timing import Devices

NEWER_LOCK = "locks/worker.txt"
OLDER_LOCK = "locks/worker-cuda12.txt"
"""torch 2.7.1 + torchvision 0.22.1: for V100 and for older drivers."""

CONTEXT_BYTES = 2_000_000_000
"""What CUDA's own context and the display may hold of a card that is free."""

PATIENCE_S = 30.0


def devices_for(cell: Cell, local_rank: int) -> Devices:
    """This rank's devices; dp drives all of the cell's, the others one each.

    Raises:
        HpmlError: never a silent fallback to the CPU, to fewer devices or to another kind.
    """
    if cell.device is Device.CPU:
        return (torch.device("cpu"),)
    if not torch.cuda.is_available():
        raise HpmlError(f"device=cuda, but torch sees no CUDA device: {why_no_cuda()}")
    visible = torch.cuda.device_count()
    if visible < cell.gpus_per_node:
        raise HpmlError(
            f"the cell needs {cell.gpus_per_node} GPU(s) on this node, torch sees {visible}: "
            "the job was given fewer, or CUDA_VISIBLE_DEVICES hides them"
        )
    numbers = (local_rank,) if cell.strategy.under_torchrun else range(cell.gpus)
    for number in numbers:
        _check_card(number, cell.gpu_type)
        await_free(number)
    torch.cuda.set_device(numbers[0])
    return tuple(torch.device("cuda", number) for number in numbers)


def await_free(
    number: int,
    memory: Callable[[int], tuple[int, int]] | None = None,
    patience_s: float = PATIENCE_S,
) -> None:
    """Wait until a card is ours alone: the cell before, in one allocation, may still be leaving it.

    `memory` tells a card's free and total bytes; torch's does, unless given.

    Raises:
        HpmlError: it stays occupied, and its times would not be ours.
    """
    deadline = time.monotonic() + patience_s
    while True:
        free, total = (memory or torch.cuda.mem_get_info)(number)
        held = total - free
        if held <= CONTEXT_BYTES:
            return
        if time.monotonic() >= deadline:
            raise HpmlError(
                f"GPU {number} holds {held / 1e9:.1f} GB of other processes, for {patience_s:g} s: "
                "it is not this cell's alone; look with nvidia-smi on the node, then resubmit"
            )
        time.sleep(min(1.0, patience_s))


def _check_card(number: int, kind: str | None) -> None:
    name = torch.cuda.get_device_name(number)
    capability = torch.cuda.get_device_capability(number)
    built_for = torch.cuda.get_arch_list()
    if not runs_on(capability, built_for):
        raise HpmlError(
            f"GPU {number} is a {name} of compute capability {capability[0]}.{capability[1]}; "
            f"torch {torch.__version__} is built for {' '.join(built_for)}: "
            f"{_other_lock(capability)}"
        )
    if kind is not None and not is_kind(kind, name):
        raise HpmlError(f"gpu_type={kind} was asked for, GPU {number} is a {name}")


def runs_on(capability: tuple[int, int], built_for: list[str]) -> bool:
    """Whether a torch build has code for a card: `sm_XY` within one X, `compute_XY` upwards.

    >>> runs_on((7, 0), ["sm_75", "sm_80", "compute_120"]), runs_on((8, 9), ["sm_80"])
    (False, True)
    """
    found = [re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name) for name in built_for]
    targets = [(m[1] + m[4], (int(m[2]), int(m[3]))) for m in found if m]
    if not targets:
        return True  # ROCm names its targets otherwise
    return any(_target_runs(code, target, capability) for code, target in targets)


def _target_runs(code: str, target: tuple[int, int], capability: tuple[int, int]) -> bool:
    if code.endswith("a"):  # sm_90a: this very architecture
        return target == capability
    if code == "compute":  # PTX, compiled on the spot for whatever is newer
        return target <= capability
    return target[0] == capability[0] and target[1] <= capability[1]


def _other_lock(capability: tuple[int, int]) -> str:
    lock = OLDER_LOCK if capability < (7, 5) else NEWER_LOCK
    return f"install {lock} into the job's Python ({sys.executable})"


def is_kind(kind: str, device_name: str) -> bool:
    """Whether a device may be what SLURM calls `kind`.

    Every part of the kind must be a run of whole words of the device's name; AMD's X models count
    as their family. A kind without a digit (`volta`) names no model, so nothing can be refused.

    >>> [is_kind("rtx8000", "Quadro RTX 8000"), is_kind("l4", "NVIDIA L40S")]
    [True, False]
    """
    if not re.search(r"\d", kind):
        return True
    words = re.findall(r"[a-z0-9.]+", device_name.lower())
    runs = {
        "".join(words[start:end])
        for start in range(len(words))
        for end in range(start + 1, len(words) + 1)
    }
    parts = re.findall(r"[a-z0-9.]+", kind.lower())
    return "".join(parts) in runs or all(part in runs or f"{part}x" in runs for part in parts)


def why_no_cuda() -> str:
    """The reason that CUDA is not there, as far as torch and the driver tell it."""
    built = torch.version.cuda
    if built is None:
        return f"torch {torch.__version__} is a build without CUDA; install {NEWER_LOCK}"
    try:
        import pynvml  # noqa: PLC0415 -- only to explain a failure

        pynvml.nvmlInit()
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        number = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
        cards = int(pynvml.nvmlDeviceGetCount())
    except Exception as fault:  # whatever is wrong with the driver is the answer
        return f"no NVIDIA driver answers on this node ({fault}); was the job given a GPU?"
    newest = f"{number // 1000}.{number % 1000 // 10}"
    if number // 1000 < int(built.split(".")[0]):
        return (
            f"driver {driver} runs CUDA up to {newest}, torch {torch.__version__} needs CUDA "
            f"{built}: install {OLDER_LOCK} into the job's Python ({sys.executable})"
        )
    return (
        f"driver {driver} (CUDA {newest}) has {cards} GPU(s), torch {torch.__version__} needs CUDA "
        f"{built}: does CUDA_VISIBLE_DEVICES hide them?"
    )
