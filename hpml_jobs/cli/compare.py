"""Command compare, its two sides, and the references that it stores."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from hpml_jobs.cli.console import console, print_json
from hpml_jobs.cli.options import Json, Outputs, find_study, history_of, outputs_of
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.text import alike, counted, did_you_mean
from hpml_jobs.study.selection import all_studies, check_name
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    from hpml_jobs.compare.document import ComparisonText
    from hpml_jobs.compare.reference import Reference

LEAST_LIMIT = 2.0
"""The least limit in percent: smaller differences are never called slower."""

_LIMIT = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?(%?)")


def compare(
    a: Annotated[
        str | None,
        typer.Argument(
            metavar="A",
            help="the reference: a study, or what --save stored; with --save the study",
        ),
    ] = None,
    b: Annotated[
        str | None,
        typer.Argument(
            metavar="B",
            help="what is compared with it; default: the most recently submitted study",
        ),
    ] = None,
    fail_if_slower: Annotated[
        str | None,
        typer.Option(
            "--fail-if-slower",
            metavar="PERCENT",
            help="exit with 1 if a cell is slower by more than this, e.g. 5%, or if the runs are "
            "too few to tell",
        ),
    ] = None,
    drift: Annotated[
        str | None,
        typer.Option(
            "--drift",
            metavar="STUDY",
            help="A submitted again, unchanged: a limit becomes at least twice the change between "
            "the two, which is the machine's",
        ),
    ] = None,
    save: Annotated[
        str | None,
        typer.Option(
            "--save",
            metavar="FILE",
            help="store the numbers of study A (default: the most recently submitted) in a file "
            "(ci/speed.json), or by a name next to the studies; compare nothing",
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="save over a file of the same name")
    ] = False,
    outputs: Outputs = None,
    json: Json = False,
) -> None:
    """Compare two studies cell by cell: which cells of B are faster or slower than those of A.

    A and B are studies, or files that --save stored: times, conditions and checks, no paths and no
    names of hosts.

    Example: hpml-jobs compare digits-old digits-new --fail-if-slower 5%
    """
    if save is not None:
        if b or drift or fail_if_slower:
            raise UsageError(
                f"--save {save} stores one study: leave B, --drift and --fail-if-slower out"
            )
        save_reference(save, a, outputs, replace=replace, json=json)
        return
    if a is None or replace:
        raise UsageError(
            "name the study to compare with: compare A [B]; --replace is for --save"
        )
    from hpml_jobs.compare.document import make_comparison

    limit = None if fail_if_slower is None else parse_limit(fail_if_slower)
    old, new = side_of(a, outputs), side_of(b, outputs)
    if old.where == new.where:
        raise UsageError(f"A and B are the same: {old.where}; give two studies")
    again = side_of(drift, outputs) if drift else None
    if again and again.where in (old.where, new.where):
        raise UsageError(f"--drift {drift}: give a third study: A, submitted again")
    text = make_comparison(
        old.numbers(), new.numbers(), limit, again.numbers() if again else None
    )
    if json:
        print_json(text.document)
    else:
        _show_comparison(console(), text)
    if text.failure:
        raise HpmlError(text.failure)


def parse_limit(word: str) -> float:
    """Return a limit as a share: 5% and 5 are 5 percent.

    Raises:
        UsageError: it is no percentage, below 2 %, or a number below 1 without a percent sign.
    """
    match = _LIMIT.fullmatch(word.strip())
    if match is None:
        raise UsageError(f"--fail-if-slower {word}: must be a percentage, e.g. 5%")
    number, sign = float(match[1]), match[2]
    if not sign and number < 1:
        raise UsageError(
            f"--fail-if-slower {word}: write {100 * number:g}% or {number:g}%, it could be either"
        )
    if number < LEAST_LIMIT:
        raise UsageError(
            f"--fail-if-slower {word}: must be {LEAST_LIMIT:g}% or more, smaller differences are "
            "never called slower"
        )
    return number / 100


def _show_comparison(out: Console, text: "ComparisonText") -> None:
    """Print the answer, then of each group the conditions that differ and the table."""
    from hpml_jobs.report.files.screen import show_table

    out.print(Text(text.answer, style="bold"))
    for group in text.groups:
        out.print()
        out.print(Text(group.setting, style="dim"))
        for line in group.conditions:
            out.print(
                Text(line, style="yellow" if line.startswith("different") else "")
            )
        show_table(group.table, out)
    for line in text.only:
        out.print(Text(line))
    out.print(Text(text.same_machine, style="dim"))
    if text.passed:
        out.print(Text(text.passed, style="bold"))


def save_reference(
    name: str, study: str | None, outputs: Path | None, *, replace: bool, json: bool
) -> None:
    """Store the numbers of a study, by default of the most recently submitted one; `json` prints.

    Raises:
        UsageError: the name is that of a study, or no name.
        HpmlError: the file exists, or cannot be written.
    """
    from hpml_jobs.compare.reference import write_reference

    folder = outputs_of(outputs)
    path = reference_path(name, folder)
    if (folder / name / "cells").is_dir():
        raise UsageError(f"{name} is a study: give the reference another name")
    if path.exists() and not replace:
        raise HpmlError(f"reference {path} exists: --replace saves over it")
    selected = find_study(study, outputs)
    numbers = Side(selected.root, selected).numbers()
    write_reference(numbers, path)
    if json:
        print_json(numbers)
    else:
        print(f"saved: {_cells(numbers)} of study {numbers.study} in {path}")


def _cells(numbers: "Reference") -> str:
    cells = [cell for group in numbers.groups for cell in group.cells if cell.runs]
    return f"{counted(len(cells), 'cell')}, {counted(sum(len(c.runs) for c in cells), 'run')}"


REFERENCES = "references"
"""The folder of stored references, next to the studies."""

SUFFIX = ".json"


class Side(NamedTuple):
    """A study with its folder, or the file of a stored reference."""

    path: Path
    study: Study | None = None

    @property
    def where(self) -> Path:
        """The folder of the study, or the file."""
        return self.path.resolve()

    def numbers(self) -> "Reference":
        """Return its numbers, under the name of the study or of the reference.

        Raises:
            HpmlError: it has none, or cannot be read.
        """
        from hpml_jobs.compare.reference import read_reference, reference_of
        from hpml_jobs.study.snapshot import read_study

        if self.study is not None:
            return reference_of(
                self.study.name, read_study(self.study, history_of(self.study))
            )
        return msgspec.structs.replace(read_reference(self.path), study=self.path.stem)


def reference_path(name: str, outputs: Path) -> Path:
    """Return the file of a reference: a path as it is, a name in the folder of references.

    Raises:
        UsageError: it is no name.
    """
    if is_path(name):
        return Path(name).expanduser()
    try:
        return outputs / REFERENCES / f"{check_name(name)}{SUFFIX}"
    except UsageError as fault:
        raise UsageError(
            f"{name!r} is not the name of a study or reference: use letters, digits, '.', '_' and "
            f"'-'; a path has a / or ends in {SUFFIX}"
        ) from fault


def is_path(word: str) -> bool:
    """Return whether a word is the path of a reference's file, not a name."""
    return "/" in word or word.endswith(SUFFIX)


def reference_names(outputs: Path) -> list[str]:
    """Return the names of the stored references."""
    return sorted(file.stem for file in (outputs / REFERENCES).glob(f"*{SUFFIX}"))


def side_of(word: str | None, outputs: Path | None) -> Side:
    """Return the study or the reference of a word; without one the most recently submitted study.

    Raises:
        HpmlError: there is none of this name; the message names the nearest.
        UsageError: the name is that of a study and of a reference.
    """
    if word is None:
        study = find_study(None, outputs)
        return Side(study.root, study)
    root = Path(word.removeprefix("study=")).expanduser()
    if "/" in word and (root / "cells").is_dir():
        study = Study(root.resolve())
        study.check_schema()
        return Side(study.root, study)
    if is_path(word.rstrip("/")):
        path = Path(word).expanduser()
        if not path.is_file():
            raise HpmlError(f"{word}: there is no such study folder or reference file")
        return Side(path)
    name = word.removeprefix("study=").rstrip("/")
    return _named(name, outputs_of(outputs))


def _named(name: str, outputs: Path) -> Side:
    file = reference_path(name, outputs)
    studies = sorted(study.name for study in all_studies(outputs))
    if name in studies and file.is_file():
        raise UsageError(
            f"{name} is a study and a reference: give its path, {outputs / name} or {file}"
        )
    if file.is_file():
        return Side(file)
    if name not in studies:
        references = reference_names(outputs)
        raise HpmlError(
            f"no study or reference {name} in {outputs}"
            f"{did_you_mean(alike(name, [*studies, *references]))} (studies: {_names(studies)}; "
            f"references: {_names(references)})"
        )
    study = find_study(name, outputs)
    return Side(study.root, study)


def _names(names: list[str]) -> str:
    return ", ".join(names) or "none"
