"""Command grade."""

import csv
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from hpml_jobs.cli.console import console, plain_table, print_json
from hpml_jobs.cli.exchange import SUFFIX, is_archive
from hpml_jobs.cli.options import Json
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.report.frame.numbers import DASH
from hpml_jobs.study.files import owner, write_whole, writing
from hpml_jobs.study.selection import is_study, studies_in

if TYPE_CHECKING:
    from hpml_jobs.exchange.grade import Grade


def grade(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER", help="study, folder of studies, or archive (.tar.gz)"),
    ],
    to: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="write a row per finding to FILE")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="exit with 1 if there is a finding")
    ] = False,
    json: Json = False,
) -> None:
    """List the impossible, edited and missing numbers of students' studies, a line per study.

    Each study is recomputed from its records, in memory: its report is not changed. The
    line has the cells of grid=lab with numbers, the speedup on the most GPUs, and the most serious
    finding.

    Example: hpml-jobs grade outputs
    """
    grades = [graded for path in folders for graded in _grades(path.expanduser())]
    if to is not None:
        with writing(to):
            write_whole(to.expanduser(), _csv(grades).encode(), parents=False)
    if json:
        print_json({"grades": grades})
    else:
        console().print(_table(grades))
        if to is not None:
            print(f"written: {to}")
    if strict and any(graded.findings for graded in grades):
        raise typer.Exit(1)


def _grades(path: Path) -> "Iterator[Grade]":
    """Yield the grade of each study of a path.

    A student is the name of a folder of studies or of an archive, or the owner of a study.
    """
    from hpml_jobs.exchange.grade import Rule, fault_of
    from hpml_jobs.exchange.grade import grade as grade_study
    from hpml_jobs.study.unpack import unpack

    if is_archive(path) and path.is_file():
        student = path.name.removesuffix(SUFFIX).removesuffix(".tgz")
        with tempfile.TemporaryDirectory() as folder:
            try:
                study, _ = unpack(path, Path(folder))
            except HpmlError as fault:
                yield fault_of(student, path.name, Rule.ARCHIVE, str(fault))
            else:
                yield grade_study(student, study)
        return
    studies = studies_in(path)
    student = owner(path) if is_study(path) else path.resolve().name
    for study in studies:
        yield grade_study(student, study)
    if not studies:
        yield fault_of(student, "", Rule.MISSING, f"no study in {path}")


def _table(grades: "list[Grade]") -> Table:
    table = plain_table(("student", "study", "ok", "speedup"), ("findings",))
    for graded in grades:
        speedup = (
            f"{graded.speedup:.2f} on {graded.gpus}, b{graded.batch}" if graded.speedup else ""
        )
        table.add_row(
            graded.student,
            graded.study or DASH,
            f"{graded.ok} of {graded.cells}",
            speedup or DASH,
            _findings(graded),
        )
    return table


def _findings(graded: "Grade") -> str:
    """Return the most serious finding in words, and the number of the others."""
    if not graded.findings:
        return "none"
    first, more = graded.findings[0], len(graded.findings) - 1
    place = f"{first.place}: " if first.place not in ("", graded.study) else ""
    return f"{first.rule}: {place}{first.text}" + (f" (and {more} more)" if more else "")


def _csv(grades: "list[Grade]") -> str:
    from hpml_jobs.report.files.csv_tables import no_formula

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("student", "study", "rule", "place", "finding"))
    for graded in grades:
        for finding in graded.findings:
            row = (graded.student, graded.study, finding.rule, finding.place, finding.text)
            writer.writerow(map(no_formula, row))
    return text.getvalue()
