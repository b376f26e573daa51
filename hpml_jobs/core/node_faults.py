"""Errors of CUDA and NVML that are the node's fault, not the cell's: another node may run it."""

import re

_NODE_FAULT = re.compile(
    r"uncorrectable (?:ECC|NVLink) error|over nvlink or a hardware error|GPU is lost"
    r"|fallen off the bus|CUDA-capable device\(s\) is/are busy or unavailable"
    r"|system not yet initialized",
    re.IGNORECASE,
)
"""cudaGetErrorString and nvmlErrorString.

Not `unspecified launch failure`: most often a kernel used an invalid pointer (CUDA's reference).
"""


def node_fault(text: str) -> str:
    """Return the words of the first such error in a text; empty if there is none.

    >>> node_fault("RuntimeError: CUDA error: uncorrectable ECC error encountered")
    'uncorrectable ECC error'
    >>> node_fault("CUDA error: an illegal memory access was encountered")
    ''
    """
    match = _NODE_FAULT.search(text)
    return match[0] if match else ""
