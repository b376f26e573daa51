"""The error report of a rank: a one-line reason, the kind of the error, and the traceback."""

import re
import sys
import time
import traceback
from collections.abc import Iterator

from hpml_jobs.core.errors import HpmlError, NodeFaultError
from hpml_jobs.core.gpus import node_fault
from hpml_jobs.core.text import first_sentence, raised
from hpml_jobs.study.cell_folder import AttemptFolder, RankError, host_name
from hpml_jobs.study.files import encode, write_whole

_OUT_OF_MEMORY = re.compile(
    r"out of memory|can't allocate memory|not enough memory|cannot allocate memory"
    r"|unable to allocate|CU\w+_STATUS_ALLOC_FAILED|CUDNN_STATUS_\w*DEVICE_ALLOCATION_FAILED"
    r"|Cuda failure 2\b|std::bad_alloc",
    re.IGNORECASE,
)
"""Messages of torch, CUDA and its libraries, NCCL, numpy and the kernel; none of this program."""

_NO_ENGINE = re.compile(
    r"(FIND|GET) was unable to find an engine to execute this computation"
)
"""cuDNN's search for an algorithm skips those whose workspace does not fit (torch's Conv_v8.cpp).

If none fits it says this, as it does of a computation that it cannot do at all.
"""

_COLLECTIVE_TIMEOUT = re.compile(
    r"timed out waiting|timing out|operation timed out|collective.*timeout",
    re.IGNORECASE,
)
"""What gloo and NCCL raise where another rank did not come to a collective."""

_UNUSED_PARAMETERS = "Expected to have finished reduction in the prior iteration"
_PARAMETER_LIST = "indices"
_REMEDY = "freeze them with requires_grad_(False) or remove them from the model."
"""DDP's message on parameters that backward() does not reach, its line with their list, the fix."""

_REWRAPPED = "Caught "
"""Start of torch's message for an error in a DataLoader worker; the last line has the error."""


def describe(error: BaseException, rank: int) -> RankError:
    """Return the report of an exception, with the current time."""
    text = "".join(traceback.format_exception(error))
    # cuDNN found no algorithm, which may be for lack of memory
    refused = refused_allocations() if _says(_NO_ENGINE, error) else ""
    reason = reason_of(error)
    return RankError(
        rank=rank,
        oom=is_oom(error) or bool(refused),
        timed_out=is_collective_timeout(error),
        node_fault=is_node_fault(error),
        host=host_name(),
        reason=f"out of memory: {refused} ({reason})" if refused else reason,
        traceback=text,
        time_ns=time.time_ns(),
    )


def write_report(error: RankError, folder: AttemptFolder) -> None:
    """Write the report to errors/rank<R>.json of the attempt, where the job's wrapper reads it.

    It replaces torch's `@record`, which works under torchrun only and does not distinguish an
    out-of-memory error from a bug.
    """
    write_whole(folder.errors / f"rank{error.rank}.json", encode(error), parents=False)


def is_oom(error: BaseException) -> bool:
    """Return whether the device or the host ran out of memory, also if the error was wrapped."""
    return any(_is_oom_link(link) for link in _chain(error))


def refused_allocations() -> str:
    """Return the allocator's figures if it refused memory in this epoch; empty if it did not."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return ""
    for number in range(torch.cuda.device_count()):
        if torch.cuda.memory_stats(number).get("num_ooms"):
            reserved = torch.cuda.max_memory_reserved(number) / 1e9
            total = torch.cuda.get_device_properties(number).total_memory / 1e9
            return f"GPU {number} refused memory at {reserved:.1f} of {total:.1f} GB"
    return ""


def is_node_fault(error: BaseException) -> bool:
    """Return whether the node's hardware, or a GPU that others hold, is the cause."""
    return any(
        isinstance(link, NodeFaultError)
        or (isinstance(link, RuntimeError) and node_fault(str(link)) != "")
        for link in _chain(error)
    )


def is_collective_timeout(error: BaseException) -> bool:
    """Return whether a collective waited in vain for another rank."""
    return _says(_COLLECTIVE_TIMEOUT, error)


def _says(words: re.Pattern[str], error: BaseException) -> bool:
    """Return whether a library's error has these words, also if it was wrapped."""
    return any(
        isinstance(link, RuntimeError) and words.search(str(link)) is not None
        for link in _chain(error)
    )


def lacks_torch(error: BaseException) -> bool:
    """Return whether torch or torchvision is not installed, also if the error was wrapped."""
    missing_modules = {
        link.name for link in _chain(error) if isinstance(link, ModuleNotFoundError)
    }
    return not missing_modules.isdisjoint(("torch", "torchvision"))


def _is_oom_link(error: BaseException) -> bool:
    if isinstance(error, HpmlError):
        return False  # a message of this program may contain the words
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # The CPU allocator, cuBLAS and NCCL raise a plain RuntimeError, the kernel an OSError.
    is_system_error = isinstance(error, RuntimeError | OSError)
    return is_system_error and bool(_OUT_OF_MEMORY.search(str(error)))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and the errors that caused it, as a traceback shows them."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (
            None if link.__suppress_context__ else link.__context__
        )


def reason_of(error: BaseException) -> str:
    """Return the error in one line, with its type unless it is one of this program's.

    >>> reason_of(ValueError("no such layer\\nSee above"))
    'ValueError: no such layer'
    """
    lines = str(error).strip().splitlines() or [""]
    sentence = first_sentence(str(error))
    if _UNUSED_PARAMETERS in lines[0]:
        parameters = next(
            (line.strip() for line in lines if _PARAMETER_LIST in line), ""
        )
        problem = "strategy=ddp: some parameters get no gradient in backward():"
        return f"{problem} {_REMEDY} {parameters}".strip()
    if isinstance(error, HpmlError):
        return " ".join(lines)
    if lines[0].startswith(_REWRAPPED):
        return raised(str(error)) or lines[-1].strip()
    name = type(error).__name__
    return f"{name}: {sentence}" if sentence else name
