"""A node looks at itself for `hpml-jobs doctor`: `python -m hpml_jobs.worker.node_check`.

Its two arguments: ASKED is the file of a cell that would be measured here;
ANSWER is written whole. Whatever goes wrong is a finding, so an answer comes unless this program
cannot run at all.
"""

import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from hpml_jobs import __version__
from hpml_jobs.core.cell import CellFile, Device, decode_cell_file
from hpml_jobs.core.findings import Finding, NodeAnswer, ok, problem, warning
from hpml_jobs.errors import HpmlError
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.worker.failure import reason_of

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (loader workers hand their batches over through it)
LEAST_SHARED_GB = 1.0
LEAST_SCRATCH_GB = 1.0


def main(asked: str, answer: str) -> int:
    """Look and answer: exit code 0."""
    file = decode_cell_file(Path(asked).read_bytes(), asked)
    sys.path.insert(0, file.code_root)
    found = tuple(look(file))
    write_whole(Path(answer), encode(NodeAnswer(written_s=time.time(), findings=found)))
    return 0


def look(file: CellFile) -> Iterator[Finding]:
    """All that a cell needs on its node; a look that raises is a problem of its own."""
    looks: tuple[tuple[str, Callable[[CellFile], Finding]], ...] = (
        ("node", _node),
        ("node versions", _versions),
        ("cpus", _cpus),
        ("devices", _devices),
        ("node data", _data),
        ("node outputs", _outputs),
        ("scratch", _scratch),
        ("shared memory", _shared_memory),
    )
    for about, one in looks:
        try:
            yield one(file)
        except HpmlError as fault:
            yield problem(about, str(fault))
        except Exception as fault:  # whatever it is, it is what the person must hear of
            yield problem(about, reason_of(fault))


def _node(_file: CellFile) -> Finding:
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    system = f"{platform.system()} {platform.release()}"
    return ok("node", f"{name}: Python {platform.python_version()} ({sys.executable}), {system}")


def _versions(file: CellFile) -> Finding:
    """Our own version is that of the login node; torch and torchvision belong together."""
    if file.hpml_jobs != __version__:
        seen = f"hpml_jobs {__version__} on the node, {file.hpml_jobs} where it was submitted"
        return problem("node versions", seen, f"install {file.hpml_jobs} into {sys.executable}")
    found = {}
    for name in ("torch", "torchvision"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            remedy = f"install locks/worker.txt into {sys.executable}"
            return problem("node versions", f"{name} is not installed on the node", remedy)
    import torch  # noqa: PLC0415  (seconds, and it may be what is broken)
    import torchvision  # noqa: PLC0415, F401  (raises where it was built for another torch)

    seen = f"hpml_jobs {__version__}, torch {torch.__version__}, torchvision {found['torchvision']}"
    wanted = torch_wanted(requires("torchvision") or [])
    if wanted and wanted != found["torch"].partition("+")[0]:
        return problem("node versions", seen, f"this torchvision wants torch {wanted}: one lock")
    return ok("node versions", seen)


def torch_wanted(requirements: list[str]) -> str | None:
    """The torch that torchvision's own metadata asks for; None where it names none.

    >>> torch_wanted(["numpy", "torch==2.14.1", "pillow!=8.3.*,>=5.3.0"])
    '2.14.1'
    """
    exact = (text.partition("==")[2] for text in requirements if text.startswith("torch=="))
    return next((text.partition(";")[0].strip() for text in exact), None)


def _cpus(file: CellFile) -> Finding:
    """The job may use as many CPUs as it asked for."""
    allowed = len(os.sched_getaffinity(0))
    asked = file.shape.cpus_per_node if file.shape else 1
    seen = f"{allowed} CPUs may be used, {asked} were asked for"
    if allowed < asked:
        remedy = "processes will share CPUs, so times get longer: fewer loader_workers=, or gpus="
        return warning("cpus", seen, remedy)
    return ok("cpus", seen)


def _devices(file: CellFile) -> Finding:
    """The devices asked for are there, of their kind, and compute; gradients can be sent."""
    import torch  # noqa: PLC0415
    from torch import distributed  # noqa: PLC0415

    from hpml_jobs.worker.devices import devices_for  # noqa: PLC0415
    from hpml_jobs.worker.instruments.facts import gather  # noqa: PLC0415

    cell = file.cell
    found = [device for rank in range(cell.gpus_per_node) for device in devices_for(cell, rank)]
    devices = list(dict.fromkeys(found))
    for device in devices:
        ones = torch.ones(256, 256, device=device)
        if float((ones @ ones).sum()) != 256.0**3:
            return problem("devices", f"{device} multiplies wrong", "tell the cluster's support")
    backend = "nccl" if cell.device is Device.CUDA else "gloo"
    if not distributed.is_backend_available(backend):
        return problem("devices", f"this torch has no {backend}", "install locks/worker.txt")
    if cell.device is Device.CPU:
        return ok("devices", "cpu computes, gloo is there (device=cpu: no CUDA is asked for)")
    facts = gather(cell, backend, None)
    cards = [torch.cuda.get_device_properties(device) for device in devices]
    names = ", ".join(dict.fromkeys(f"{c.name} (sm_{c.major}{c.minor})" for c in cards))
    seen = f"{len(cards)} x {names} computes; driver {facts.driver}, torch built for CUDA "
    return ok("devices", f"{seen}{facts.cuda}, NCCL {facts.nccl}")


def _data(file: CellFile) -> Finding:
    """The data set opens here, as a cell opens it, and the model is built."""
    from hpml_jobs.worker.prepare import prepare  # noqa: PLC0415

    workload = file.cell.workload
    counts = prepare(workload, Path(file.data_root))
    model = f"its model has {counts.parameters:,} parameters"
    seen = f"{counts.images:,} images of {workload.name} open here; {model}"
    return ok("node data", seen)


def _outputs(_file: CellFile) -> Finding:
    """What we were asked lies in outputs, and so will the answer."""
    return ok("node outputs", "read and written from the node")


def _scratch(_file: CellFile) -> Finding:
    """Temporary files can be written."""
    folder = tempfile.gettempdir()
    with tempfile.TemporaryFile() as file:
        file.write(b"doctor")
    free_gb = shutil.disk_usage(folder).free / 1e9
    seen = f"{folder} writable, {free_gb:,.1f} GB free"
    if free_gb < LEAST_SCRATCH_GB:
        return warning("scratch", seen, "export TMPDIR in cluster.setup to a folder with room")
    return ok("scratch", seen)


def _shared_memory(file: CellFile) -> Finding:
    """Loader workers have room to hand their batches over."""
    free_gb = shutil.disk_usage(SHARED_MEMORY).free / 1e9
    seen = f"{SHARED_MEMORY} has {free_gb:,.1f} GB free"
    if free_gb < LEAST_SHARED_GB and file.cell.loader_workers:
        return warning("shared memory", seen, "large batches may kill loader workers; ask for more")
    return ok("shared memory", seen)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
