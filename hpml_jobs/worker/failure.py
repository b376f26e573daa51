"""What a rank says when it raises: one line of reason, whether memory ran out, the traceback."""

import re
import time
import traceback
from collections.abc import Iterator

from hpml_jobs.errors import HpmlError
from hpml_jobs.study.attempt import AttemptFolder, RankError
from hpml_jobs.study.files import encode, write_whole

_OUT_OF_MEMORY = re.compile(
    r"out of memory|can't allocate memory|not enough memory|cannot allocate memory"
    r"|unable to allocate|CUBLAS_STATUS_ALLOC_FAILED|std::bad_alloc",
    re.IGNORECASE,
)
"""What torch, CUDA, cuBLAS, numpy and the kernel write; no wording of this program."""

_UNUSED = "Expected to have finished reduction in the prior iteration"
_UNUSED_LIST = "indices"
_FREEZE = "freeze them with requires_grad_(False), or take them out of the model."
"""What DDP says of parameters that backward does not reach, its line that lists them, a remedy."""

_REWRAPPED = "Caught "
"""How torch begins the message of a DataLoader worker's error; its last line is the error."""


def describe(error: BaseException, rank: int) -> RankError:
    """An exception as a value, with the time at which it was caught."""
    text = "".join(traceback.format_exception(error))
    return RankError(
        rank=rank,
        oom=is_oom(error),
        reason=reason_of(error),
        traceback=text,
        time_ns=time.time_ns(),
    )


def report(error: RankError, folder: AttemptFolder) -> None:
    """Leave the error for the job's wrapper: errors/rank<R>.json of the attempt.

    This does the work of torch's `@record`, for `single` and `dp` too, where no torchrun reads
    `@record`'s file, and it knows an out-of-memory error from a bug.
    """
    write_whole(folder.errors / f"rank{error.rank}.json", encode(error))


def is_oom(error: BaseException) -> bool:
    """Whether memory ran out, on the device or on the host, also where the error was wrapped."""
    return any(_says_oom(link) for link in _chain(error))


def lacks_torch(error: BaseException) -> bool:
    """Whether torch or torchvision is not installed, also where the error was wrapped."""
    missing = {link.name for link in _chain(error) if isinstance(link, ModuleNotFoundError)}
    return not missing.isdisjoint(("torch", "torchvision"))


def _says_oom(error: BaseException) -> bool:
    if isinstance(error, HpmlError):
        return False  # our own words: a cell is not out of memory because a sentence says so
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # The CPU allocator, cuBLAS and NCCL raise a plain RuntimeError, the kernel an OSError.
    words = str(error)
    return isinstance(error, RuntimeError | OSError) and bool(_OUT_OF_MEMORY.search(words))


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def reason_of(error: BaseException) -> str:
    """The error in one line.

    >>> reason_of(ValueError("no such layer\\nsee above"))
    'ValueError: no such layer'
    """
    lines = str(error).strip().splitlines() or [""]
    if _UNUSED in lines[0]:
        told = next((line.strip() for line in lines if _UNUSED_LIST in line), "")
        return (
            f"strategy=ddp: some parameters get no gradient in backward; {_FREEZE} {told}".strip()
        )
    if isinstance(error, HpmlError):
        return " ".join(lines)
    if lines[0].startswith(_REWRAPPED):
        return lines[-1].strip()
    return f"{type(error).__name__}: {lines[0]}".removesuffix(": ")
