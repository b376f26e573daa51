"""What `hpml-jobs doctor` finds: one line each, with what mends it."""

from enum import StrEnum

from hpml_jobs.core.value import Value


class Level(StrEnum):
    """How bad it is: with a problem no study can be measured here."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(Value, frozen=True, kw_only=True):
    """One thing that was looked at: what was seen, and what mends it where it is not right."""

    about: str
    level: Level
    seen: str
    remedy: str = ""


class NodeAnswer(Value, frozen=True, kw_only=True):
    """What a node tells of itself; `written_s` is its own clock as it wrote this, Unix time."""

    written_s: float
    findings: tuple[Finding, ...]


def ok(about: str, seen: str) -> Finding:
    """Something is as it must be."""
    return Finding(about=about, level=Level.OK, seen=seen)


def warning(about: str, seen: str, remedy: str = "") -> Finding:
    """Something may become a problem."""
    return Finding(about=about, level=Level.WARNING, seen=seen, remedy=remedy)


def problem(about: str, seen: str, remedy: str = "") -> Finding:
    """Something keeps studies from being measured here."""
    return Finding(about=about, level=Level.PROBLEM, seen=seen, remedy=remedy)
