"""Extra-P: measurements as JSON and as text, for models of the time against GPUs and batch per GPU.

Extra-P wants every metric of a file at every point of it. So a file has the metrics that all
points of a strategy have, and a second one those that only several GPUs have: communication. The
text has the same values, in a format that other programs and people read.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import counted
from hpml_jobs.exchange.runs import ExportedStudy, Written
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.study.files import encode, write_whole

METRICS = (
    *("epoch_s", "train_s", "stall_s", "step_s", "compute_s", "comm_s", "comm_exposed_s"),
    *("exchange_s", "comm_total_s", "comm_cost_s"),
)
"""Figures that are exported, in seconds per epoch; `step_s` is of one iteration."""

STEP = "step_s"


class Parameter(NamedTuple):
    """A parameter of Extra-P's models."""

    name: str
    value: Callable[[Row], int]


PARAMETERS = (Parameter("p", attrgetter("gpus")), Parameter("b", attrgetter("batch_per_gpu")))
"""p: number of GPUs, b: batch per GPU. One that does not vary in a file is left out."""


class Series(NamedTuple):
    """One strategy and treatment of a group with its baseline: the rows of one callpath.

    `whole` names the whole time: that of an epoch, or `time_s` of an imported amount of work.
    `steps_s` are the seconds of an iteration that predictions start from, by cell.
    """

    file: str
    callpath: str
    rows: list[Row]
    whole: str
    steps_s: Mapping[str, float]

    def values(self, metric: str, row: Row) -> list[float]:
        """Return a metric of every run of a row; empty if one does not have it.

        Of imported timings without iterations, that which predictions take from their rate.
        """
        values = [getattr(run, metric) for run in row.runs]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            return known
        step_s = self.steps_s.get(row.cells[0]) if metric == STEP and not known else None
        return [] if step_s is None else [step_s]


def write(study: ExportedStudy, folder: Path) -> Written:
    """Write one or two JSON files per condition group and strategy, each with its text file.

    Raises:
        HpmlError: no strategy was measured at two points.
    """
    notes: list[str] = []
    files: list[Path] = []
    for series in _series(study, notes):
        parallel = [row for row in series.rows if row.gpus > 1]
        of_all = _measured(series, series.rows)
        more = [name for name in _measured(series, parallel) if name not in of_all]
        for suffix, rows, metrics in (
            ("", series.rows, of_all),
            ("-communication", parallel, more),
        ):
            parameters = [p for p in PARAMETERS if len({p.value(row) for row in rows}) > 1]
            if parameters and metrics:
                files.append(folder / f"{series.file}{suffix}.json")
                document = _document(series, rows, metrics, parameters)
                write_whole(files[-1], encode(document))
                write_whole(files[-1].with_suffix(".txt"), text_of(document).encode())
    if not files:
        raise HpmlError(
            f"study {study.name} has no strategy with two sizes or batches: Extra-P needs them"
        )
    command = f"extrap --json {shlex.quote(str(files[0]))}"
    what = f"{counted(len(files), 'JSON file')} and {counted(len(files), 'text file')}"
    return Written(what, command, tuple(notes))


def _series(study: ExportedStudy, notes: list[str]) -> Iterator[Series]:
    for group in study.report.groups:
        prefix = f"group{group.number}-" if study.report.several else ""
        records = [result.record for result in group.source.cells if result.record]
        steps_s = {slug: o.step_s for o in group.forecast.observations for slug in o.cells}
        whole = "time_s" if any(record.work_s for record in records) else "epoch_s"
        for of_strategy in group.strategies:
            timed = [row for row in of_strategy.rows if row.runs]
            others = [row for row in timed if not row.is_baseline]
            for treatment, path in dict.fromkeys((row.treatment, row.path) for row in others):
                callpath = " ".join(filter(None, (of_strategy.strategy.value, treatment)))
                base = [row for row in timed if row.is_baseline and row.path == path]
                treated = [row for row in others if row.treatment == treatment]
                rows = list(_fewest_nodes([*base, *treated], notes))
                file = prefix + re.sub(r"\W+", "_", callpath)
                yield Series(file, callpath, rows, whole, steps_s)


def _fewest_nodes(rows: Iterable[Row], notes: list[str]) -> Iterator[Row]:
    """Yield one row per point: that on the fewest nodes; note the others."""
    points: dict[tuple[int, ...], Row] = {}
    for row in sorted(rows, key=attrgetter("nodes")):
        point = tuple(parameter.value(row) for parameter in PARAMETERS)
        if point in points:
            notes.append(
                f"left out: {row.strategy.value}, {row.gpus} GPUs on {row.nodes} nodes at batch "
                f"{row.batch_per_gpu} (the same point on {points[point].nodes} is exported)"
            )
        points.setdefault(point, row)
    yield from points.values()


def _measured(series: Series, rows: Sequence[Row]) -> list[str]:
    """Return the metrics that every run at every point has; none without rows."""
    return [name for name in METRICS if rows and all(series.values(name, row) for row in rows)]


def _document(
    series: Series, rows: Sequence[Row], metrics: Sequence[str], parameters: Sequence[Parameter]
) -> dict[str, Any]:
    """Return the measurements in Extra-P's JSON format; repeats are the values of a point."""
    of_callpath = {
        series.whole if name == "epoch_s" else name: [
            {
                "point": [parameter.value(row) for parameter in parameters],
                "values": series.values(name, row),
            }
            for row in rows
        ]
        for name in metrics
    }
    return {
        "parameters": [parameter.name for parameter in parameters],
        "measurements": {series.callpath: of_callpath},
    }


def text_of(document: dict[str, Any]) -> str:
    """Return a document of one callpath in Extra-P's text format.

    A line of DATA has the values of one point, in the order of POINTS.

    >>> entries = [{"point": [1, 32], "values": [8.0]}, {"point": [2, 32], "values": [4.4, 4.6]}]
    >>> print(text_of({"parameters": ["p", "b"], "measurements": {"ddp": {"step_s": entries}}}))
    PARAMETER p
    PARAMETER b
    POINTS (1 32) (2 32)
    REGION ddp
    METRIC step_s
    DATA 8.0
    DATA 4.4 4.6
    <BLANKLINE>
    """
    ((callpath, of_callpath),) = document["measurements"].items()
    points = [entry["point"] for entry in next(iter(of_callpath.values()))]
    lines = [f"PARAMETER {name}" for name in document["parameters"]]
    lines += [f"POINTS {' '.join(f'({_spaced(point)})' for point in points)}"]
    lines += [f"REGION {callpath}"]
    for metric, entries in of_callpath.items():
        lines += [f"METRIC {metric}", *(f"DATA {_spaced(entry['values'])}" for entry in entries)]
    return "\n".join([*lines, ""])


def _spaced(values: Iterable[object]) -> str:
    return " ".join(map(str, values))
