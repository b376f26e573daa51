"""Runs as other tools know them, one per record, and what a writer of a format returns."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from math import ceil, isfinite
from typing import Any, NamedTuple

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import few, unix_time
from hpml_jobs.core.value import Value
from hpml_jobs.report.files.csv_tables import flat
from hpml_jobs.report.frame import curves
from hpml_jobs.report.key_numbers import key_numbers
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.rows import Row
from hpml_jobs.study.selection import submitted_at
from hpml_jobs.study.study import Study

HISTORY_ROWS = 1_000
"""The maximum of history rows of a run; of longer runs each k-th iteration is exported."""


@contextmanager
def needs(packages: str) -> Iterator[None]:
    """Name the packages to install where an import in the `with` block fails.

    Raises:
        HpmlError: it failed.
    """
    try:
        yield
    except ImportError as fault:
        raise HpmlError(f"{fault}: pip install {packages}") from fault


class Written(NamedTuple):
    """What was written, in words, and the command that reads it."""

    what: str
    command: str


Setting = str | int | float | bool


class Iteration(NamedTuple):
    """One iteration: mean loss and most seconds over the ranks; `at_s` since the first one."""

    iteration: int
    epoch: int
    at_s: float
    loss: float
    step_s: float
    lr: float

    @property
    def values(self) -> dict[str, float]:
        """Its numbers by name; key numbers of the run have the same names without the prefix."""
        numbers = {"loss": self.loss, "step_s": self.step_s, "lr": self.lr}
        return {f"iteration/{name}": value for name, value in numbers.items()}


class ExportedRun(Value, frozen=True, kw_only=True):
    """One record as a run. The same record of the same study has the same `id`.

    `started_s` is in seconds since 1970; of imported timings it is the time of the import. `config`
    has the cell's settings and its group's conditions, `summary` its key numbers.
    """

    id: str
    name: str
    study: str
    workload: str
    outcome: Outcome
    started_s: float
    config: dict[str, Setting]
    summary: dict[str, float]
    history: tuple[Iteration, ...] = ()

    @property
    def tags(self) -> tuple[str, ...]:
        """What runs are filtered by."""
        return self.study, self.workload, self.outcome.value

    @property
    def ended_s(self) -> float:
        """The end of its last iteration, in seconds since 1970."""
        return self.started_s + (self.history[-1].at_s if self.history else 0)


class ExportedStudy(NamedTuple):
    """A study to export; `notes` say what is not in it."""

    name: str
    runs: list[ExportedRun]
    notes: list[str]


def exported(study: Study, report: Report) -> ExportedStudy:
    """Return a study's records as runs, in the order of the report."""
    runs: dict[str, ExportedRun] = {}
    without = {result.slug: result.outcome for result in report.unplaced}
    notes: list[str] = []
    for group in report.groups:
        rows = {slug: row for row in group.source.rows for slug in row.cells}
        for result in group.source.cells:
            if result.record is None:
                without[result.slug] = result.outcome
            elif result.slug not in runs:  # it may belong to several groups
                row, history = rows.get(result.slug), _history(result, notes)
                runs[result.slug] = _run(study, group, row, result.record, history)
    if without:
        names = few(f"{slug} ({outcome.value})" for slug, outcome in without.items())
        notes.append(f"not exported, without a record: {names}")
    return ExportedStudy(study.name, list(runs.values()), notes)


def _run(
    study: Study,
    group: ReportGroup,
    row: Row | None,
    record: Record,
    history: tuple[Iteration, ...],
) -> ExportedRun:
    identity = f"{study.name}/{record.slug}/{record.attempt.id}"
    return ExportedRun(
        id=hashlib.sha256(identity.encode()).hexdigest()[:16],
        name=record.slug,
        study=study.name,
        workload=record.cell.workload.name,
        outcome=record.outcome,
        started_s=unix_time(record.attempt.started) or submitted_at(study.root),
        config=_config(study, group, record),
        summary=_summary(record, row) if record.outcome is Outcome.OK else {},
        history=history,
    )


def _config(study: Study, group: ReportGroup, record: Record) -> dict[str, Setting]:
    """Return the settings of the cell, then the conditions that its group shares."""
    conditions = {
        f"condition {name}": text for name, text in group.source.conditions.items()
    }
    settings = {
        "study": study.name,
        "group": group.number,
        "slug": record.slug,
        "attempt": record.attempt.id,
        "hosts": " ".join(record.attempt.hosts),
        "reason": record.reason,
        "unit": record.cell.workload.throughput_unit.value,
        **flat(record.cell),
        **conditions,
    }
    return {name: value for name, value in settings.items() if value not in (None, "")}


def _summary(record: Record, row: Row | None) -> dict[str, float]:
    """Return the key numbers that are one number, phases, parts of the start, and the speedup."""
    numbers: dict[str, Any] = {**key_numbers(record)}
    for prefix, key in (("phase", "phases"), ("startup", "startup")):
        parts = numbers[key] or {}
        numbers |= {f"{prefix}_{name}_s": seconds for name, seconds in parts.items()}
    if row is not None:
        numbers["speedup"] = row.speedup
        numbers["efficiency"] = row.scaling.efficiency if row.scaling else None
    return {
        name: value
        for name, value in numbers.items()
        if isinstance(value, int | float) and isfinite(value)
    }


def _history(result: CellResult, notes: list[str]) -> tuple[Iteration, ...]:
    """Return the iterations of a run; note why it has none although it has a file of them."""
    if not curves.has_curve(result):
        return ()
    try:
        return tuple(_iterations(curves.read(result)))
    except curves.NoCurveError as fault:
        notes.append(f"no history of {result.slug}: {fault}")
        return ()


def _iterations(curve: curves.Curve) -> Iterator[Iteration]:
    """Yield the iterations of a curve, thinned to HISTORY_ROWS."""
    count = len(curve.loss)
    ends_s = list(accumulate(curve.step_s.tolist()))
    every = max(1, ceil(count / HISTORY_ROWS))
    epochs: list[int] = []
    for number, epoch in enumerate(curve.epochs, 1):
        epochs += [number] * epoch.iterations
    arrays = (curve.loss, curve.step_s, curve.lr)
    for at in range(0, count, every):
        values = (float(array[at]) for array in arrays)
        yield Iteration(at + 1, epochs[at], ends_s[at], *values)
