"""Checks of a compute node for `hpml-jobs doctor`: `python -m hpml_jobs.worker.node_check`.

Its arguments are the file of a cell that could run here, and the file for the answer. Every error
is a finding of the answer, so there is an answer unless this program cannot run at all.
"""

import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from hpml_jobs.core.answers import Finding, NodeAnswer, Severity, ok, problem, warning
from hpml_jobs.core.cell import Cell, CellFile, decode_cell_file
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.gpus import Card, lane_fault, memory_fault, slowing_reasons
from hpml_jobs.core.processes import leave
from hpml_jobs.core.strategies import Device, Loader
from hpml_jobs.core.text import VERSION, counted
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.worker.failure import reason_of

if TYPE_CHECKING:
    from hpml_jobs.worker.instruments.cards import CardReader
    from hpml_jobs.worker.instruments.timing import Devices

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (loader workers pass batches through it)
MIN_SHARED_GB = 1.0
MIN_MEMORY_MB = 1500
GPU_HEALTH = "gpu health"


def main(cell_path: str, answer_path: str) -> int:
    """Run all checks and write the answer; return exit code 0."""
    file = decode_cell_file(Path(cell_path).read_bytes(), cell_path)
    if file.cell.workload.own_code:
        sys.path.insert(0, file.code_root)
    findings = tuple(check_node(file))
    write_whole(
        Path(answer_path), encode(NodeAnswer(written_s=time.time(), findings=findings))
    )
    return 0


def check_node(file: CellFile) -> Iterator[Finding]:
    """Check all that a cell needs on its node; a check that raises becomes a problem."""
    checks: tuple[tuple[str, Callable[[CellFile], Finding]], ...] = (
        ("node", _node),
        ("node versions", _versions),
        ("cpus", _cpus),
        ("devices", _devices),
        ("node data", _data),
        ("shared memory", _shared_memory),
    )
    for about, check in checks:
        try:
            finding = check(file)
        except HpmlError as error:
            finding = problem(about, str(error))
        except Exception as error:  # any error is a finding
            finding = problem(about, reason_of(error))
        yield finding
        if check is _devices and finding.level is Severity.OK:
            yield from _cards(file)


def _node(_file: CellFile) -> Finding:
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    system = f"{platform.system()} {platform.release()}"
    return ok(
        "node",
        f"{name}: Python {platform.python_version()} ({sys.executable}), {system}",
    )


def _versions(file: CellFile) -> Finding:
    """Check that hpml_jobs is the login node's version, and that torch and torchvision work."""
    if file.hpml_jobs != VERSION:
        text = (
            f"hpml_jobs is {VERSION} on the node and {file.hpml_jobs} on the login node"
        )
        return problem(
            "node versions", text, f"install {file.hpml_jobs} into {sys.executable}"
        )
    installed = {}
    for name in ("torch", "torchvision"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            remedy = f"install locks/worker.txt into {sys.executable}"
            return problem(
                "node versions", f"{name} is not installed on the node", remedy
            )
    import torch  # noqa: PLC0415  (takes seconds, and may be what is broken)
    import torchvision  # noqa: PLC0415, F401  (raises if it was built for another torch)

    versions = f"torch {torch.__version__}, torchvision {installed['torchvision']}"
    text = f"hpml_jobs {VERSION}, {versions}"
    return ok("node versions", text)


def _cpus(file: CellFile) -> Finding:
    """Check that the job may use as many CPUs as it requested, with enough memory for each."""
    # set where the job did not request memory
    memory = int(os.environ.get("SLURM_MEM_PER_CPU", MIN_MEMORY_MB))
    if memory < MIN_MEMORY_MB:
        text = f"{memory} MB for each CPU, the default of this site"
        remedy = "a process of torch needs 1 GB and more: cluster.mem_gb_per_gpu=4"
        return warning("memory", text, remedy)
    allowed = len(os.sched_getaffinity(0))
    requested = file.shape.cpus_per_node if file.shape else 1
    text = f"{counted(allowed, 'CPU')} available, {requested} requested"
    if allowed < requested:
        remedy = "processes share CPUs, which makes times longer: reduce loader_workers= or gpus="
        return warning("cpus", text, remedy)
    return ok("cpus", text)


def _devices(file: CellFile) -> Finding:
    """Check that the cell's devices exist, have the right type and compute, and its backend."""
    import torch  # noqa: PLC0415

    cell = file.cell
    devices = _devices_of(cell)
    for device in devices:
        ones = torch.ones(256, 256, device=device)
        if float((ones @ ones).sum()) != 256.0**3:
            text = f"{device} returned a wrong matrix product"
            return problem("devices", text, "report the node to the cluster's support")
    if cell.device is Device.CPU:
        return ok("devices", "the CPU computes (device=cpu needs no CUDA)")
    return _gpus(file, devices)


def _gpus(file: CellFile, devices: "Devices") -> Finding:
    """Name the GPUs, which compute, and what drives them."""
    import torch  # noqa: PLC0415

    from hpml_jobs.worker.instruments.facts import read_facts  # noqa: PLC0415

    facts = read_facts(file, "nccl")
    gpus = [torch.cuda.get_device_properties(device) for device in devices]
    names = ", ".join(
        dict.fromkeys(f"{gpu.name} (sm_{gpu.major}{gpu.minor})" for gpu in gpus)
    )
    software = (
        f"driver {facts.driver}, torch built for CUDA {facts.cuda}, NCCL {facts.nccl}"
    )
    return ok("devices", f"{len(gpus)} x {names} computes; {software}")


def _devices_of(cell: Cell) -> "Devices":
    """Return the devices of all ranks on this node; with dp every rank has all of them."""
    from hpml_jobs.worker.devices import devices_for  # noqa: PLC0415

    local_ranks = range(cell.gpus_per_node)
    return tuple(
        dict.fromkeys(d for rank in local_ranks for d in devices_for(cell, rank))
    )


def _cards(file: CellFile) -> Iterator[Finding]:
    """Yield the health of each GPU of the cell; nothing on the CPU."""
    from hpml_jobs.worker.instruments.cards import CardReader  # noqa: PLC0415
    from hpml_jobs.worker.instruments.facts import device_uuids  # noqa: PLC0415

    if file.cell.device is Device.CUDA:
        yield from card_findings(CardReader(device_uuids(_devices_of(file.cell))))


def card_findings(reader: "CardReader") -> Iterator[Finding]:
    """Yield a finding for each GPU that NVML answers for, or why it answers for none."""
    reader.read()
    if not reader.state:
        reason = reader.missing[0] if reader.missing else "no UUID of a GPU"
        yield ok(GPU_HEALTH, f"not read: {reason}")
    for card in reader.state:
        yield _finding(card)


def _finding(card: Card) -> Finding:
    number = "" if card.index is None else f" {card.index}"
    gpu = f"GPU{number} {card.bus_id or card.uuid}"
    if fault := memory_fault(card) or lane_fault(card):
        remedy = "report the node to the cluster's support"
        return warning(GPU_HEALTH, f"{gpu}: {fault}", remedy)
    if reasons := slowing_reasons(card):
        remedy = "measure on another node, or report it if it stays so"
        text = f"{gpu}: clocks lowered by {', '.join(reasons)}"
        return warning(GPU_HEALTH, text, remedy)
    return ok(GPU_HEALTH, f"{gpu}: no fault")


def _data(file: CellFile) -> Finding:
    """Check that the data set opens and the model is built."""
    from hpml_jobs.worker.prepare import prepare  # noqa: PLC0415

    workload = file.cell.workload
    on_device = file.cell.loader is Loader.DEVICE
    counts = prepare(workload, Path(file.data_root), as_tensors=on_device)
    text = f"opened {counts.images:,} {workload.samples_name} of {workload.name}"
    if counts.parameters is not None:
        text += f"; its model has {counts.parameters:,} parameters"
    return ok("node data", text)


def _shared_memory(file: CellFile) -> Finding:
    """Check that loader workers have shared memory for their batches."""
    free_gb = shutil.disk_usage(SHARED_MEMORY).free / 1e9
    text = f"{SHARED_MEMORY} has {free_gb:,.1f} GB free"
    if free_gb < MIN_SHARED_GB and file.cell.loader_workers:
        remedy = (
            "large batches may kill loader workers: request more, or loader_workers=0"
        )
        return warning("shared memory", text, remedy)
    return ok("shared memory", text)


if __name__ == "__main__":
    leave(main(*sys.argv[1:]))
