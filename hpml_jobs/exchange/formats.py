"""The formats of an export, and what each writes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.errors import HpmlError

if TYPE_CHECKING:
    from hpml_jobs.exchange.runs import ExportedStudy


class Format(StrEnum):
    """A tool that a study is exported for."""

    WANDB = "wandb"
    MLFLOW = "mlflow"
    TENSORBOARD = "tensorboard"
    EXTRAP = "extrap"


class Written(NamedTuple):
    """What was written, in words, and the command that reads it; `notes` on what was not."""

    what: str
    command: str
    notes: tuple[str, ...] = ()


Writer = Callable[["ExportedStudy", Path], Written]


def writer(of: Format) -> Writer:
    """Return the function that writes a study in a format.

    Raises:
        HpmlError: a package that it needs is not installed.
    """
    write: Writer = import_module(f"hpml_jobs.exchange.to_{of.value}").write
    return write


@contextmanager
def needs(packages: str) -> Iterator[None]:
    """Name the packages to install where an import in the `with` block fails.

    Raises:
        HpmlError: it failed.
    """
    try:
        yield
    except ImportError as fault:
        raise HpmlError(f"{fault}: pip install {packages}") from fault
