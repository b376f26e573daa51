"""Options and arguments that commands share, and the study and cells that they select."""

import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from typer import Argument, Option

from hpml_jobs.cli.terminal import repeated
from hpml_jobs.core.errors import HpmlError, UsageError, example
from hpml_jobs.core.paths import resolve_path, typed_path
from hpml_jobs.core.text import alike, did_you_mean, nearest, with_command
from hpml_jobs.study.manifest import History
from hpml_jobs.study.selection import NoStudyError, OfCell, find, is_path, matching
from hpml_jobs.study.study import Study


def _existing_folder(folder: Path | None) -> Path | None:
    if folder is not None and not folder.is_dir():
        raise UsageError(f"--config-dir {folder}: there is no such folder")
    return folder


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
        callback=_existing_folder,
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


class StudySelection(NamedTuple):
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
) -> StudySelection:
    """Return what `[STUDY] [PATTERN]` select; a first word with *, ? or [ in it is a pattern.

    Raises:
        HpmlError: there is no such study.
        UsageError: both words are patterns.
    """
    if study is not None and _WILDCARDS & set(study):
        if pattern is not None:
            raise UsageError(
                f"{study} {pattern}: both are patterns; give the name of a study, then a pattern"
            )
        study, pattern = None, study
    return StudySelection(find_study(study, outputs), pattern, study is not None)


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


def commands_here(study: Study, commands: Iterable[str]) -> tuple[str, ...]:
    """Return commands that submitted a study with the option that finds it from here."""
    _, is_elsewhere, _ = study_words(study).partition(" ")
    if not is_elsewhere:
        return tuple(commands)
    here = []
    for command in commands:
        words = [
            word for word in shlex.split(command) if not word.startswith("outputs=")
        ]
        here.append(shlex.join([*words, f"outputs={study.root.parent}"]))
    return tuple(here)


Number = TypeVar("Number", int, float)

Reader = Callable[[str], Any]
"""Reads the value of a key; its UsageError says what the value must be."""


def parse_words(
    command: str, words: Sequence[str] | None, keys: Mapping[str, Reader]
) -> tuple[str | None, dict[str, Any]]:
    """Return the study and the values of the keys that a command's words give.

    A study may be named in each of its forms: NAME, study=NAME, its folder.

    Raises:
        UsageError: an unknown key, a key that is given twice, a bad value, two studies.
    """
    values: dict[str, Any] = {}
    names = []
    for word in words or ():
        key, is_pair, text = word.partition("=")
        if not is_pair or key == "study":
            names.append(word)
            continue
        if key not in keys:
            raise UsageError(f"{word}: {command} has {_list_of(keys, key)}")
        if key in values:
            raise UsageError(f"{word}: {key} is given twice")
        if not text:
            refuse_lone_keys([key], keys)
        try:
            values[key] = keys[key](text)
        except UsageError as fault:
            raise UsageError(f"{word}: {fault}") from None
    if len(names) > 1:
        refuse_lone_keys(names, keys)
        raise UsageError(f"{' '.join(names)}: {command} is for one study; name one")
    return names[0] if names else None, values


def _list_of(keys: Collection[str], typed: str) -> str:
    from hpml_jobs.plan.keys import type_of

    noun = "keys" if len(keys) > 1 else "key"
    hint = did_you_mean(f"{name}=" for name in alike(typed, keys))
    if type_of(typed) is not None:
        hint = f"; {typed}= belongs to a submission"
    return f"the {noun} {', '.join(keys)}{hint}"


def refuse_lone_keys(words: Iterable[str], keys: Iterable[str]) -> None:
    """Raise UsageError if a word is almost a key, which has no value then."""
    for word in words:
        for key in keys:
            if word in key.split("_") or nearest(word, [key], cutoff=0.75):
                raise UsageError(f"{word}: write {key}=VALUE{example(key)}")


def reader_of(kind: type[Number], words: str) -> Callable[[str], Number]:
    """Return a reader of numbers of a kind; `words` say in its UsageError what is needed."""

    def read(text: str) -> Number:
        try:
            return kind(text)
        except ValueError:
            raise UsageError(f"must be {words}") from None

    return read


number, whole_number = reader_of(float, "a number"), reader_of(int, "a whole number")


def share(text: str) -> float:
    """Read a share of 1; `70%` is 0.7.

    Raises:
        UsageError: it is none, or above 1.
    """
    value = number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if value > 1:
        is_percent = not text.endswith("%") and 2 <= value <= 100
        hint = f"; write {value / 100:g} or {value:g}%" if is_percent else ""
        raise UsageError(f"must be 1 (100%) or less{hint}")
    return value


REPORT_KEYS: Mapping[str, Reader] = {
    "min_efficiency": share,
    "epochs": whole_number,
    "gpu_hours": number,
}
"""The keys of a report: wishes for the cell to use."""


def find_study(
    study: str | None, outputs: Path | None, keys: Iterable[str] = ()
) -> Study:
    """Return the study of that name; without a name the most recently submitted one, and say so.

    Raises:
        HpmlError: there is none; of one in a folder nearby, the message has the command for it.
        UsageError: there is none, and the name is almost one of the keys.
    """
    try:
        selected = find(outputs_of(outputs), study)
    except NoStudyError as fault:
        refuse_lone_keys([study or ""], keys)
        if fault.elsewhere is None or study is None or outputs is not None:
            raise
        path = os.path.relpath(fault.elsewhere)
        command = repeated({study: path if is_path(path) else f"./{path}"})
        raise HpmlError(with_command(str(fault), command)) from fault
    if study is None:
        print(f"study {selected.name} (most recently submitted)", file=sys.stderr)
    return selected


def history_of(study: Study) -> History:
    """Return the manifest's history; an empty one, with a line on stderr, if it cannot be read."""
    try:
        return study.history()
    except HpmlError as fault:
        print(
            f"warning: {fault}; cells without a folder are not shown", file=sys.stderr
        )
        return History()
