"""A stand-in for a GPU: compiled once for each source and version of torch, loaded as `standin`.

Only processes of its own load it: torch then takes it for the machine's accelerator.
"""

import ctypes
import fcntl
import hashlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import torch

SOURCE = Path(__file__).with_name("standin.cpp")
TORCH = Path(torch.__file__).parent
NAME = "standin"


def build() -> Path:
    """Compile the device unless this machine has it; return the library."""
    key = hashlib.sha256(SOURCE.read_bytes() + f"{torch.__version__} {TORCH}".encode()).hexdigest()
    folder = Path.home() / ".cache" / "hpml_jobs-standin"
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{key[:16]}.so"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the workers of pytest compile it once
        if not library.exists():
            part = library.with_suffix(".part")
            command = ["g++", "-std=c++20", "-O1", "-fPIC", "-shared", f"-I{TORCH}/include"]
            command += [str(SOURCE), "-o", str(part), f"-L{TORCH}/lib", "-ltorch_cpu", "-lc10"]
            subprocess.run(command, check=True, timeout=600)
            part.rename(library)
    return library


def load() -> ctypes.CDLL:
    """Make the device known to torch as `standin`; return the functions of the library."""
    import torch._meta_registrations  # noqa: PLC0415 -- the shapes of results

    library = build()
    torch.utils.rename_privateuse1_backend(NAME)
    torch.ops.load_library(str(library))
    module = ModuleType(f"torch.{NAME}")
    functions = {
        "device_count": torch.accelerator.device_count,
        "is_available": torch.accelerator.is_available,
        "current_device": torch.accelerator.current_device_index,
        "_is_in_bad_fork": lambda: False,
        "manual_seed_all": lambda seed: None,
    }
    for name, function in functions.items():
        setattr(module, name, function)
    sys.modules[module.__name__] = module
    torch._register_device_module(NAME, module)
    return ctypes.CDLL(str(library))
