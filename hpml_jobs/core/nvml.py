"""NVML, the library of NVIDIA's driver that knows the GPUs of a node; opened where it is asked."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class NvmlError(Exception):
    """NVML cannot be used: no driver, no permission, or pynvml is not installed."""


def open_nvml(nvml: Any = None) -> Any:
    """Return pynvml, initialized, which may take seconds; or the given module in its place.

    Raises:
        NvmlError: with the driver's reason.
    """
    try:
        if nvml is None:
            import pynvml  # noqa: PLC0415 -- only on nodes with NVIDIA GPUs

            nvml = pynvml
        nvml.nvmlInit()
    except Exception as error:  # a broken driver may raise anything
        raise NvmlError(str(error) or type(error).__name__) from error
    return nvml


@contextmanager
def nvml_session() -> Iterator[Any]:
    """Open NVML for the block, and close it at its end.

    Raises:
        NvmlError: with the driver's reason.
    """
    nvml = open_nvml()
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def gpus_by_uuid(nvml: Any) -> dict[str, Any]:
    """Return the handles of all GPUs that NVML shows, in its order, by UUID."""
    handles = [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(nvml.nvmlDeviceGetCount())]
    return {nvml_text(nvml.nvmlDeviceGetUUID(handle)): handle for handle in handles}


def nvml_text(value: str | bytes) -> str:
    """Return a text of NVML, which older versions of pynvml return as bytes."""
    return value.decode() if isinstance(value, bytes) else value
