"""Findings of `hpml-jobs doctor`: what was checked, what was observed, and the remedy."""

from enum import StrEnum

from hpml_jobs.core.value import Value


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
