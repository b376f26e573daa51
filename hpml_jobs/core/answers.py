"""What a process that a command started answers: counts of the data, findings of a check."""

from enum import StrEnum

from hpml_jobs.core.value import Value
from hpml_jobs.core.workload import SourceFile

NO_TORCH_CODE = 3
"""Exit code of the worker's `prepare` where its Python has no torch or no torchvision."""


class Counts(Value, frozen=True, kw_only=True):
    """The answer of `prepare`: training images before `limit`, parameters.

    `parameters` is None where the model cannot be built without a GPU. `tokens` is the length of an
    input, where tokens are counted and it has one dimension. `imported` are the local files that
    the user's code imported.
    """

    images: int
    parameters: int | None
    tokens: int | None = None
    imported: tuple[SourceFile, ...] = ()


class Severity(StrEnum):
    """Severity of a finding: with a problem no study can be measured here."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(Value, frozen=True, kw_only=True):
    """The result of one check: what was checked and observed, and the remedy if it is wrong."""

    about: str
    level: Severity
    seen: str
    remedy: str = ""


class NodeAnswer(Value, frozen=True, kw_only=True):
    """The findings of a node; `written_s` is its clock when it wrote them, Unix time."""

    written_s: float
    findings: tuple[Finding, ...]


def ok(about: str, observed: str) -> Finding:
    """Return a finding that is as it must be."""
    return Finding(about=about, level=Severity.OK, seen=observed)


def warning(about: str, observed: str, remedy: str = "") -> Finding:
    """Return a finding that may become a problem."""
    return Finding(about=about, level=Severity.WARNING, seen=observed, remedy=remedy)


def problem(about: str, observed: str, remedy: str = "") -> Finding:
    """Return a finding that prevents studies from being measured here."""
    return Finding(about=about, level=Severity.PROBLEM, seen=observed, remedy=remedy)
