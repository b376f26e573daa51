"""Commands compare and import: numbers of another study, or of another program."""

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from hpml_jobs.cli.console import console, print_json
from hpml_jobs.cli.options import Json, Outputs, find_study, outputs_of, study_words
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.paths import resolve_path, typed_path
from hpml_jobs.core.text import PROGRAM, counted, with_command
from hpml_jobs.study.files import read_bytes, reading
from hpml_jobs.study.selection import check_name
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    from hpml_jobs.compare.comparison import ComparedStudies
    from hpml_jobs.compare.reference import Reference

LEAST_LIMIT = 2.0
"""The least limit in percent: smaller differences are never called slower."""

SUFFIX = ".json"
"""The end of the name of a file of numbers."""


def compare(
    a: Annotated[
        str | None,
        typer.Argument(
            metavar="A",
            help="the reference: a study, or a file of --save; with --save the study",
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
            help="exit with 1 if a cell may be slower by more than this, e.g. 5%",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="FILE",
            help="store the numbers of study A (default: the most recently submitted) in "
            "FILE; compare nothing",
        ),
    ] = None,
    outputs: Outputs = None,
    json: Json = False,
) -> None:
    """Compare two studies cell by cell: which cells of B are faster or slower than those of A.

    A and B are studies, or files that --save wrote: times, conditions and checks, no paths and no
    names of hosts.

    Example: hpml-jobs compare digits-old digits-new --fail-if-slower 5%
    """
    if save is not None:
        if b or fail_if_slower:
            raise UsageError(
                f"--save {save} stores one study: leave B and --fail-if-slower out"
            )
        _save(typed_path(save), a, outputs)
        return
    if a is None:
        raise UsageError("name the study to compare with: compare A [B]")
    from hpml_jobs.compare.comparison import make_comparison

    limit = None if fail_if_slower is None else parse_limit(fail_if_slower)
    old, new = _numbers(a, outputs), _numbers(b, outputs)
    if old == new:
        raise UsageError(f"A and B have the same runs ({old.study}): give two studies")
    compared = make_comparison(old, new, limit)
    if json:
        print_json(compared.document)
    else:
        _show(compared)
    if compared.failure:
        raise HpmlError(compared.failure)
    if limit is not None and not json:
        print("passed: no cell is slower by more than the limit")


def parse_limit(word: str) -> float:
    """Return a limit as a share: 5% and 5 are 5 percent.

    Raises:
        UsageError: it is no percentage, or below 2 %: then 0.05 may be a share.
    """
    try:
        percent = float(word.removesuffix("%"))
    except ValueError:
        percent = 0.0
    if not LEAST_LIMIT <= percent < inf:
        raise UsageError(
            f"--fail-if-slower {word}: must be a percentage of {LEAST_LIMIT:g} or more, e.g. 5%: "
            "smaller differences are never called slower"
        )
    return percent / 100


def _show(compared: "ComparedStudies") -> None:
    from hpml_jobs.report.files.screen import show_table

    out = console()
    out.print(Text(compared.answer, style="bold"))
    for table in compared.tables:
        show_table(table, out, set())
    for line in compared.only:
        out.print(Text(line))


def _save(path: Path, study: str | None, outputs: Path | None) -> None:
    """Store the numbers of a study, by default of the most recently submitted one.

    Raises:
        UsageError: the file is not called .json.
        HpmlError: it exists, or cannot be written.
    """
    from hpml_jobs.compare.reference import write_reference

    if path.suffix != SUFFIX:
        raise UsageError(f"--save {path}: name a file that ends in {SUFFIX}")
    if path.exists():
        raise HpmlError(f"reference {path} exists: remove it first")
    numbers = _numbers(study, outputs)
    write_reference(numbers, path)
    print(f"saved: the numbers of study {numbers.study} in {path}")


def _numbers(word: str | None, outputs: Path | None) -> "Reference":
    """Return the numbers of a file or a study; without a word of the most recently submitted study.

    Raises:
        HpmlError: there are none, or they cannot be read.
    """
    from hpml_jobs.compare.reference import read_reference, reference_of
    from hpml_jobs.study.snapshot import read_study

    if word is not None and word.endswith(SUFFIX):
        return read_reference(typed_path(Path(word)))
    study = find_study(word, outputs)
    return reference_of(study.name, read_study(study, study.history()))


KEY = "study="


def import_(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE study=NAME",
            help="a table of runs as CSV; name of the new study",
        ),
    ] = None,
    outputs: Outputs = None,
) -> None:
    """Make a study from timings of another program: a CSV table with a row for each run.

    Its columns are gpus, batch (per GPU) and epoch_s, or images (of an epoch) and images_per_s; it
    may have run, nodes, strategy, gpu_type, loss and accuracy. Rows that differ in nothing but the
    times are repeats. See docs/results.md, also for a history of W&B.

    Example: hpml-jobs import docs/published.csv study=published
    """
    from hpml_jobs.study.timings import read_timings, write_study

    named = [word for word in words or () if word.startswith(KEY)]
    files = [word for word in words or () if word not in named]
    if len(files) != 1 or len(named) != 1:
        raise UsageError(
            "import takes one file and one name: import FILE.csv study=NAME; all else is a column "
            "of the table (docs/results.md)"
        )
    file, name = Path(files[0]), named[0].removeprefix(KEY)
    study = Study(resolve_path(outputs_of(outputs)) / check_name(name))
    with reading(file):
        content = read_bytes(file.expanduser())
    records = read_timings(content, file.name)
    write_study(study, records)
    print(f"imported {counted(len(records), 'row')} of {file.name}")
    print(f"study {study.name} in {study.root}")
    print(with_command("next", f"{PROGRAM} collect {study_words(study)}"))
