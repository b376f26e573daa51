"""Options and arguments that commands share, and the study and cells that they select."""

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import Argument, Option

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import resolve_path, typed_path
from hpml_jobs.study.selection import OfCell, find, matching
from hpml_jobs.study.study import Study

Overrides = Annotated[
    list[str] | None,
    Argument(
        metavar="KEY=VALUE",
        help="keys of the study, listed by hpml-jobs help keys",
    ),
]
Multirun = Annotated[
    bool,
    Option("-m", "--multirun", help="one cell for every combination of key=a,b,c"),
]
ConfigDir = Annotated[
    Path | None,
    Option(
        "--config-dir",
        metavar="FOLDER",
        help="folder of your own configs: cluster/, workload/, recipe/, grid/",
        exists=True,
        file_okay=False,
    ),
]
StudyName = Annotated[
    str | None,
    Argument(
        metavar="STUDY",
        help="name of the study; default: the most recently submitted",
    ),
]
Pattern = Annotated[
    str | None,
    Argument(
        metavar="PATTERN",
        help="only cells whose name matches, e.g. 'ddp-*'; default: all",
    ),
]
ReportWords = Annotated[
    list[str] | None,
    Argument(
        metavar="[STUDY] [KEY=VALUE]...",
        help="study, default: the most recently submitted; keys: min_efficiency, epochs, "
        "gpu_hours",
    ),
]
Outputs = Annotated[
    Path | None,
    Option(
        "--outputs",
        metavar="FOLDER",
        help="folder of the studies; default: outputs= of your config",
    ),
]
DryRun = Annotated[
    bool,
    Option("--dry-run", "-n", help="only show what would be done, as plan does"),
]
Yes = Annotated[bool, Option("--yes", "-y", help="submit without a question")]
AllCells = Annotated[
    bool, Option("--all", help="show every cell; plan: every script and value, too")
]
Json = Annotated[bool, Option("--json", help="print JSON, for programs")]
Strict = Annotated[
    bool, Option("--strict", help="exit with code 1 if a cell has not finished")
]

_WILDCARDS = frozenset("*?[")


class StudyPattern(NamedTuple):
    """A study, whether its name was typed, and a pattern of its cells; None selects all cells."""

    study: Study
    pattern: str | None = None
    is_named: bool = True

    def chosen(self, items: Iterable[OfCell]) -> list[OfCell]:
        """Return the items whose slug is or matches the pattern.

        Raises:
            HpmlError: none does; the message lists slugs of the study.
        """
        if self.pattern is None:
            return list(items)
        return matching(items, self.pattern, self.study.name)


def select_study(
    study: str | None, pattern: str | None, outputs: Path | None
) -> StudyPattern:
    """Return what `[STUDY] [PATTERN]` select; a first word with *, ? or [ in it is a pattern.

    Raises:
        HpmlError: there is no such study.
    """
    if study is not None and pattern is None and _WILDCARDS & set(study):
        study, pattern = None, study
    return StudyPattern(find_study(study, outputs), pattern, study is not None)


def outputs_of(outputs: Path | None) -> Path:
    """Return the folder of the studies: the option's, else that of the user's config."""
    if outputs is None:
        from hpml_jobs.plan.user_config import user_outputs

        outputs = user_outputs()
    return typed_path(outputs)


def study_words(study: Study) -> str:
    """Return the words that select a study in a suggested command: its name, and its folder."""
    from hpml_jobs.plan.user_config import user_outputs

    folder = study.root.parent
    if resolve_path(folder) == resolve_path(user_outputs()):
        return study.name
    return f"{study.name} --outputs {shlex.quote(str(folder))}"


def _share(text: str) -> float:
    value = float(text)
    if value > 1:
        raise ValueError
    return value


REPORT_KEYS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "min_efficiency": (_share, "a share of 1, e.g. 0.8"),
    "epochs": (int, "a whole number"),
    "gpu_hours": (float, "a number"),
}
"""The keys of a report: what reads a value, and what it is."""


def parse_words(words: Sequence[str]) -> tuple[str | None, dict[str, Any]]:
    """Return the study and the values of the keys that the words of collect give.

    A study may be named in each of its forms: NAME, study=NAME, its folder.

    Raises:
        UsageError: an unknown key, a key that is given twice, a bad value, two studies.
    """
    values: dict[str, Any] = {}
    names = []
    for word in words:
        key, is_pair, text = word.partition("=")
        if not is_pair or key == "study":
            names.append(word)
            continue
        if key not in REPORT_KEYS:
            raise UsageError(f"{word}: collect has {', '.join(REPORT_KEYS)}")
        if key in values:
            raise UsageError(f"{word}: {key} is given twice")
        read, needed = REPORT_KEYS[key]
        try:
            values[key] = read(text)
        except ValueError:
            raise UsageError(f"{word}: must be {needed}") from None
    if len(names) > 1:
        raise UsageError(
            f"{' '.join(names)}: name one study; keys of collect are KEY=VALUE"
        )
    return names[0] if names else None, values


def find_study(study: str | None, outputs: Path | None) -> Study:
    """Return the study of that name; without a name the most recently submitted one, and say so.

    Raises:
        HpmlError: there is none.
    """
    selected = find(outputs_of(outputs), study)
    if study is None:
        print(f"study {selected.name} (most recently submitted)", file=sys.stderr)
    return selected
