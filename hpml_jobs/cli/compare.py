"""Command compare."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from hpml_jobs.cli.completion import compared
from hpml_jobs.cli.console import console, print_json
from hpml_jobs.cli.options import Json, Outputs
from hpml_jobs.cli.reference import save_reference
from hpml_jobs.errors import HpmlError, UsageError

if TYPE_CHECKING:
    from hpml_jobs.cli.sides import Side
    from hpml_jobs.report.compare.document import ComparisonText

LEAST_LIMIT = 2.0
"""The least limit in percent: smaller differences are never called slower."""

_LIMIT = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?(%?)")


def compare(
    a: Annotated[
        str | None,
        typer.Argument(
            metavar="A",
            help="the reference: a study, or what --save stored; with --save the study",
            autocompletion=compared,
        ),
    ] = None,
    b: Annotated[
        str | None,
        typer.Argument(
            metavar="B",
            help="what is compared with it; default: the most recently submitted study",
            autocompletion=compared,
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
            autocompletion=compared,
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
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FOLDER", help="folder of the picture; default: report/ in study B"
        ),
    ] = None,
    outputs: Outputs = None,
    json: Json = False,
) -> None:
    """Compare two studies cell by cell: which cells of B are faster or slower than those of A.

    A and B are studies, or files that --save stored: times, conditions and checks, no paths and no
    names of hosts. compare.png and compare.svg show it.

    Example: hpml-jobs compare digits-old digits-new --fail-if-slower 5%
    """
    if save is not None:
        if b is not None:
            raise UsageError(f"--save {save} stores one study: {a} or {b}?")
        save_reference(save, a, outputs, replace=replace, json=json)
        return
    if a is None:
        raise UsageError("name the study to compare with: hpml-jobs compare A [B]")
    from hpml_jobs.cli.sides import side_of
    from hpml_jobs.report.compare.document import make_comparison

    limit = None if fail_if_slower is None else parse_limit(fail_if_slower)
    old, new = side_of(a, outputs), side_of(b, outputs)
    if old.where == new.where:
        raise UsageError(f"A and B are the same: {old.where}; give two studies")
    again = side_of(drift, outputs) if drift else None
    if again and again.where in (old.where, new.where):
        raise UsageError(f"--drift {drift}: give a third study: A, submitted again")
    text = make_comparison(old.numbers(), new.numbers(), limit, again.numbers() if again else None)
    if json:
        print_json(text.document)
    else:
        _show(console(), text)
    _write(text, new, to, json=json)
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


def _show(out: Console, text: "ComparisonText") -> None:
    """Print the answer, then of each group the conditions that differ and the table."""
    from hpml_jobs.report.files.screen import show_table

    out.print(Text(text.answer, style="bold"))
    for group in text.groups:
        out.print()
        out.print(Text(group.setting, style="dim"))
        for line in group.conditions:
            out.print(Text(line, style="yellow" if line.startswith(("unlike", "other")) else ""))
        show_table(group.table, out)
    for line in text.only:
        out.print(Text(line))
    out.print(Text(text.same_machine, style="dim"))
    if text.passed:
        out.print(Text(text.passed, style="bold"))


def _write(text: "ComparisonText", new: "Side", to: Path | None, *, json: bool) -> None:
    """Write the picture beside the report of B, or into the folder that was named.

    Raises:
        HpmlError: the folder that was named cannot be written.
    """
    from hpml_jobs.report.compare.document import write_picture

    folder = to.expanduser() if to else new.study.report if new.study else None
    if folder is None:
        return
    try:
        written = write_picture(text, folder)
    except OSError as fault:
        reason = f"the picture cannot be written: {folder}: {fault.strerror}"
        if to is not None:
            raise HpmlError(reason) from fault
        print(f"{reason}; --to FOLDER writes it elsewhere", file=sys.stderr)
        return
    if written and not json:
        print(f"written: {', '.join(path.name for path in written)} in {folder}")
