"""Which study and which of its cells a command means, and the options such commands share."""

import shlex
import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, NamedTuple, Protocol, TypeVar

import typer

from hpml_jobs.cli.completion import studies
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.study.study import Study, find

StudyName = Annotated[
    str | None,
    typer.Argument(metavar="[STUDY]", help="default: sent last", autocompletion=studies),
]
Pattern = Annotated[
    str | None, typer.Argument(metavar="[PATTERN]", help="of cells' names, e.g. 'ddp-4gpu-*'")
]
Outputs = Annotated[
    Path | None, typer.Option("--outputs", help="the folder studies are written to")
]
Json = Annotated[bool, typer.Option("--json", help="for programs: JSON on standard output")]
Strict = Annotated[bool, typer.Option("--strict", help="exit 1 unless all cells have their answer")]

_WILD = frozenset("*?[")


class _Named(Protocol):
    """Anything of a cell: a folder, a state, a record."""

    @property
    def slug(self) -> str: ...


Of = TypeVar("Of", bound=_Named)


class StudySelection(NamedTuple):
    """The study that a command means, and a pattern of its cells; None means all of them."""

    study: Study
    pattern: str | None = None

    def chosen(self, there: Iterable[Of]) -> list[Of]:
        """Those whose slug is or matches the pattern.

        Raises:
            HpmlError: none does; the message names those that are there.
        """
        known = list(there)
        if self.pattern is None:
            return known
        found = [one for one in known if fnmatchcase(one.slug, self.pattern)]
        if not found:
            names = ", ".join(one.slug for one in known) or "none"
            raise HpmlError(f"no cell {self.pattern} in {self.study.name} (there: {names})")
        return found


def which(study: str | None, pattern: str | None, outputs: Path | None) -> StudySelection:
    """What `[STUDY] [PATTERN]` mean; a first word with *, ? or [ in it is a pattern already.

    Raises:
        HpmlError: there is no such study.
        UsageError: two patterns.
    """
    if study is not None and _WILD & set(study):
        if pattern is not None:
            raise UsageError(f"{study} {pattern}: two patterns; a study's name, then one pattern")
        study, pattern = None, study
    return StudySelection(find_study(study, outputs), pattern)


def outputs_words(outputs: Path | None) -> str:
    """What a command must be told to look in another folder than the usual one, if it must."""
    return f" --outputs {shlex.quote(str(outputs))}" if outputs else ""


def find_study(study: str | None, outputs: Path | None) -> Study:
    """The study asked for, or the one sent last, said so."""
    if outputs is None:
        from hpml_jobs.plan.user_config import personal_outputs  # noqa: PLC0415

        outputs = personal_outputs()
    found = find(outputs.expanduser(), study)
    if study is None:
        print(f"study {found.name} (the one sent last)", file=sys.stderr)
    return found
