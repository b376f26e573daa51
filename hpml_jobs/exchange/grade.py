"""Grading: a study recomputed from its records; its impossible, edited and missing numbers."""

import csv
import io
import itertools
import math
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from hpml_jobs.checks import Level
from hpml_jobs.checks.comparability import too_efficient
from hpml_jobs.checks.result import names
from hpml_jobs.core.built_in import CIFAR10_IMAGES
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Baseline
from hpml_jobs.core.value import Value, decode_json
from hpml_jobs.plan.config_folders import ConfigFolders
from hpml_jobs.report.files import csv_tables, json_tables
from hpml_jobs.report.folder import TABLES
from hpml_jobs.report.report import Report, ReportOptions, make_report
from hpml_jobs.report.training import curves
from hpml_jobs.status.states import StudyStatus, study_status
from hpml_jobs.study.files import read_bytes, reason_of
from hpml_jobs.study.study import Study

DATA_BYTES = CIFAR10_IMAGES * 32 * 32 * 3
"""Bytes of CIFAR-10's training images; reports take them for those of the gradients."""

SAME_BYTES = 0.02
"""Largest relative difference of sizes that are taken to be the same."""

SAME_NUMBER = 1e-6
"""Largest relative difference of a number that machines and versions compute differently."""


class Rule(StrEnum):
    """What a finding is about, the most serious first."""

    ARCHIVE = "archive"  # damaged, or changed after it was packed
    RECORD = "record"  # changed, or its values contradict each other or its cell
    TABLE = "table"  # a file in report/ has other numbers than the records give
    CHECK = "check"  # a data-quality check failed: the number is impossible or cannot be used
    GRADIENTS = "gradients"  # their size is that of the data set
    MISSING = "missing"  # cells of the lab's grid


class Finding(Value, frozen=True, kw_only=True):
    """One finding; `place` is a cell, or a file in the folder of the study."""

    rule: Rule
    place: str
    text: str


class Grade(Value, frozen=True, kw_only=True):
    """A student's study: cells of the lab's grid with numbers, speedup at the most GPUs, findings.

    The findings are ordered, the most serious first.
    """

    student: str
    study: str
    ok: int = 0
    cells: int = 0
    speedup: float | None = None
    gpus: int | None = None
    batch: int | None = None
    findings: tuple[Finding, ...] = ()


def grade(student: str, study: Study) -> Grade:
    """Recompute a study from its records and return what is wrong with it."""
    try:
        study.check_schema()
        status = study_status(study)
        report = make_report(study.name, status.snapshots, status.states, _options(study))
    except HpmlError as fault:
        return fault_of(student, study.name, Rule.RECORD, str(fault))
    grid = _lab_grid()
    measured = [r for source in report.sources for r in source.cells if r.measured and r.cell]
    places = {(result.cell.gpus, result.cell.batch) for result in measured if result.cell}
    rows = [r for s in report.sources for r in s.timed if r.gpus > 1 and r.speedup is not None]
    largest = max(rows, key=lambda row: (row.gpus, row.batch_per_gpu), default=None)
    findings = dict.fromkeys(  # a cell may be in several groups
        (
            *_records(status),
            *_iterations(report),
            *_tables(study, report),
            *_checks(report),
            *(f for r in measured if r.record for f in _gradients(r.record)),
            *_missing(report, grid),
        )
    )
    return Grade(
        student=student,
        study=study.name,
        ok=len(grid & places),
        cells=len(grid),
        speedup=largest.speedup if largest else None,
        gpus=largest.gpus if largest else None,
        batch=largest.batch_per_gpu if largest else None,
        findings=tuple(sorted(findings, key=lambda finding: [*Rule].index(finding.rule))),
    )


def fault_of(student: str, study: str, rule: Rule, text: str) -> Grade:
    """Return the grade of a study that cannot be read."""
    finding = Finding(rule=rule, place=study, text=text)
    return Grade(student=student, study=study, cells=len(_lab_grid()), findings=(finding,))


def _lab_grid() -> set[tuple[int, int]]:
    """Return GPUs and batch of the cells of grid=lab."""
    blocks = ConfigFolders(None).grid_blocks("lab")
    return {pair for b in blocks for pair in itertools.product(b["gpus"], b["batch"])}


def _options(study: Study) -> ReportOptions:
    """Return the options of the report that the study has."""
    try:
        shown = _numbers(TABLES, read_bytes(study.report / TABLES).decode())
    except (OSError, ValueError, HpmlError):
        shown = {}
    baselines = {value for key, value in shown.items() if key.endswith(".ratios_against")}
    baseline = Baseline.SMALLEST if Baseline.SMALLEST in baselines else Baseline.SINGLE
    return ReportOptions(study.last_cluster(), study.commands(), baseline)


# ---- rules ----


def _records(status: StudyStatus) -> Iterator[Finding]:
    """Yield a finding for each file of a cell that is not what was measured, or impossible."""
    for snapshot in status.snapshots:
        for fault in filter(None, (snapshot.file_fault, snapshot.record_fault)):
            text = fault.replace(f"{snapshot.folder.root}/", "")
            yield Finding(rule=Rule.RECORD, place=snapshot.folder.slug, text=text)


def _iterations(report: Report) -> Iterator[Finding]:
    """Yield a finding for each record whose times are not those of its iterations."""
    for result in (result for source in report.sources for result in source.cells):
        if curves.has_curve(result):
            try:
                curves.read_ranks(result)
            except curves.NoCurveError as fault:
                yield Finding(rule=Rule.RECORD, place=result.slug, text=str(fault))


def _checks(report: Report) -> Iterator[Finding]:
    """Yield a finding for each failed data-quality check, and each single run above N times."""
    for source in report.sources:
        single = {row.cells[0] for row in source.timed if row.gpus > 1 and len(row.runs) == 1}
        for slug, results in source.checks.items():
            for result in results:
                is_above = result.check == too_efficient.name and result.level is not Level.PASS
                if result.level is Level.FAIL or (is_above and slug in single):
                    text = f"{result.check}: {result.reason}"
                    yield Finding(rule=Rule.CHECK, place=slug, text=text)


def _gradients(record: Record) -> Iterator[Finding]:
    """Yield a finding where an imported row has the data set's size as that of the gradients."""
    size = record.model.gradient_bytes if record.imported and record.model else 0
    if math.isclose(size, DATA_BYTES, rel_tol=SAME_BYTES):
        text = (
            f"gradients of {size / 1e6:.4g} MB are the images of CIFAR-10 ({DATA_BYTES / 1e6:.4g} "
            "MB): correct parameters="
        )
        yield Finding(rule=Rule.GRADIENTS, place=record.slug, text=text)


def _missing(report: Report, grid: set[tuple[int, int]]) -> Iterator[Finding]:
    """Yield a finding if cells of the grid did not finish."""
    cells = (r for source in report.sources for r in source.cells if r.outcome.finished)
    missing = sorted(grid - {(r.cell.gpus, r.cell.batch) for r in cells if r.cell})
    if missing:
        words = names(f"gpus={gpus} batch={batch}" for gpus, batch in missing)
        text = f"{len(missing)} of {len(grid)} cells of grid=lab: {words}"
        yield Finding(rule=Rule.MISSING, place="", text=text)


def _tables(study: Study, report: Report) -> Iterator[Finding]:
    """Yield a finding for each file of tables with other numbers than the records give."""
    for name, computed in {
        TABLES: json_tables.document(report),
        **csv_tables.sheets(report),
    }.items():
        place = f"{study.report.name}/{name}"
        try:
            shown = _numbers(name, read_bytes(study.report / name).decode())
        except FileNotFoundError:
            continue
        except (OSError, ValueError, HpmlError, csv.Error) as fault:
            reason = reason_of(fault) if isinstance(fault, OSError) else str(fault)
            yield Finding(rule=Rule.TABLE, place=place, text=f"it cannot be read: {reason}")
            continue
        changed = [
            f"{key} is {shown[key]}, the records give {right}"
            for key, right in _numbers(name, computed).items()
            if key in shown and not _same(shown[key], right)
        ]
        if changed:
            text = names(changed, separator="; ") + " (edited, or older than the records)"
            yield Finding(rule=Rule.TABLE, place=place, text=text)


def _numbers(name: str, text: str) -> dict[str, Any]:
    """Return the values of a table's file by their place in it."""
    if name.endswith(".json"):
        return dict(_leaves("", decode_json(text.encode(), dict[str, Any])))
    rows = csv.DictReader(io.StringIO(text))
    return {f"line {rows.line_num} {key}": value for row in rows for key, value in row.items()}


def _leaves(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(f"{place}.{key}" if place else str(key), inner)
    else:
        yield place, value


def _same(shown: Any, right: Any) -> bool:
    """Return whether two values are the same number, or neither is a number."""
    first, second = _number(shown), _number(right)
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=SAME_NUMBER)


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
