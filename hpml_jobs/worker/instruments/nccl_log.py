"""NCCL's own log: the algorithm, protocol and channels that it chose for each message."""

import ctypes
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hpml_jobs.core.measurements import CollectiveKind, NcclChoice
from hpml_jobs.errors import HpmlError

LIBRARY = "libnccl.so.2"

SYMMETRIC, COPY_ENGINE = "Symmetric", "Copy Engine"
"""What NCCL writes instead of an algorithm for its kernels on symmetric memory, and for copies."""

_KINDS = {
    "AllReduce": CollectiveKind.ALL_REDUCE,
    "AllGather": CollectiveKind.ALL_GATHER,
    "ReduceScatter": CollectiveKind.REDUCE_SCATTER,
    "Broadcast": CollectiveKind.BROADCAST,
    "Reduce": CollectiveKind.REDUCE,
}

_CHOICE = re.compile(
    r"NCCL INFO (?P<kind>\w+)(?: \[(?P<way>[\w ]+)\])?: (?P<bytes>\d+) Bytes -> "
    r"(?:Algo (?P<algorithm>\w+) proto (?P<protocol>\w+) "
    r"channel\{Lo\.\.Hi\}=\{(?P<low>\d+)\.\.(?P<high>\d+)\}"
    r"|Kernel (?P<kernel>\S+) nchannels (?P<channels>\d+)"
    r"|\S+)"
)
"""The lines of NCCL 2.24 to 2.30 (src/enqueue.cc)."""


class NcclLogError(HpmlError):
    """NCCL cannot be asked for its choices; the message says why."""


@contextmanager
def nccl_log(path: Path) -> Iterator[None]:
    """Let NCCL of this process write its choices to a file, in this block only.

    NCCL reads NCCL_DEBUG once. `ncclResetDebugInit` (2.24 and later) lets it read the variables
    again, so that training runs without the log.

    Raises:
        NcclLogError: NCCL is not loaded as a library, or is older than 2.24.
    """
    reset = _reset_function()
    settings = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,TUNING",
        "NCCL_DEBUG_FILE": str(path).replace("%", "%%"),
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ |= settings
    reset()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        reset()


def _reset_function() -> Callable[[], None]:
    """Return NCCL's function that lets it read the variables of its log again."""
    try:
        library = ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        reset = library.ncclResetDebugInit
    except (OSError, AttributeError) as error:
        raise NcclLogError(f"NCCL's algorithm: {error}") from error
    reset.argtypes, reset.restype = (), None
    function: Callable[[], None] = reset
    return function


def parse_choices(lines: Iterable[str]) -> tuple[NcclChoice, ...]:
    """Return the choices in a log, the last one of each collective and size.

    >>> line = "n1:7:9 [0] NCCL INFO AllReduce: {} Bytes -> Algo {} proto {} channel{{Lo..Hi}}={{}}"
    >>> parse_choices([line.format(1024, "TREE", "LL").replace("{}", "{0..1}")])[0].text
    'TREE/LL, 2 channels'
    """
    choices: dict[tuple[CollectiveKind, int], NcclChoice] = {}
    for line in lines:
        match = _CHOICE.search(line)
        kind = _KINDS.get(match["kind"]) if match else None
        if match is None or kind is None or not (match["algorithm"] or match["way"]):
            continue
        channels = match["channels"] or (
            match["high"] and int(match["high"]) - int(match["low"]) + 1
        )
        choice = NcclChoice(
            kind=kind,
            bytes=int(match["bytes"]),
            algorithm=match["algorithm"] or match["way"],
            protocol=match["protocol"] or match["kernel"],
            channels=int(channels) if channels else None,
        )
        choices[kind, choice.bytes] = choice
    return tuple(choices.values())
