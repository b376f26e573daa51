"""A stand-in for a GPU: compiled once for each source and version of torch, loaded as `standin`.

Only processes of its own load it: torch then takes it for the machine's accelerator.
"""

import ctypes
import fcntl
import hashlib
import subprocess
from functools import partial
from pathlib import Path
from types import ModuleType

import torch

from tests.patience import PATIENCE_S

SOURCE = Path(__file__).with_name("standin.cpp")
TORCH = Path(torch.__file__).parent
NAME, DEVICES = "standin", 2


def build() -> Path:
    """Compile the device unless this machine has it; return the library."""
    key = hashlib.sha256(
        SOURCE.read_bytes() + f"{torch.__version__} {TORCH}".encode()
    ).hexdigest()
    folder = Path.home() / ".cache" / "hpml_jobs-standin"
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{key[:16]}.so"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the workers of pytest compile it once
        if not library.exists():
            part = library.with_suffix(".part")
            command = [
                "g++",
                "-std=c++20",
                "-O1",
                "-fPIC",
                "-shared",
                f"-I{TORCH}/include",
            ]
            command += [
                str(SOURCE),
                "-o",
                str(part),
                f"-L{TORCH}/lib",
                "-ltorch_cpu",
                "-lc10",
            ]
            subprocess.run(command, check=True, timeout=PATIENCE_S)
            part.rename(library)
    return library


def load() -> ctypes.CDLL:
    """Make the device known to torch as `standin`; return the functions of the library."""
    import torch._meta_registrations  # noqa: PLC0415 -- the shapes of results

    path = str(build())
    torch.utils.rename_privateuse1_backend(NAME)
    torch.ops.load_library(path)
    module = ModuleType(f"torch.{NAME}")
    vars(module).update(
        {
            "device_count": lambda: DEVICES,
            "is_available": lambda: True,
            "Event": partial(torch.Event, NAME),
            "current_device": torch.accelerator.current_device_index,
            "set_device": torch.accelerator.set_device_index,
            "mem_get_info": torch.accelerator.get_memory_info,
            "get_rng_state": lambda device: _generator(device.index).get_state(),
            "set_rng_state": lambda state, device: _generator(device.index).set_state(
                state
            ),
            "manual_seed_all": _seed_all,
            "_is_in_bad_fork": lambda: False,
            "_sleep": lambda cycles: None,
            # the rest is the same there
            "__getattr__": partial(getattr, torch.accelerator),
        }
    )
    torch._register_device_module(NAME, module)
    library = ctypes.CDLL(path)
    library.standin_bytes.argtypes = (ctypes.c_int, ctypes.c_void_p)
    library.standin_bytes.restype = ctypes.c_void_p
    return library


def _generator(index: int) -> torch.Generator:
    generator: torch.Generator = torch._C._accelerator_getDefaultGenerator(index)
    return generator


def _seed_all(seed: int) -> None:
    for index in range(DEVICES):
        _generator(index).manual_seed(seed)
