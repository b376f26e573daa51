"""Predictions from rates, compared with what published tables measured.

    python tests/benchmarks/predictions.py [FILE.csv …] [--series] [--nested] [--csv FILE]

Each file has the columns of `hpml-jobs import`, `gpus_per_node` included. Without files, those that
the model was made with (docs/predict.md); tests/data/published has more, held_back*.csv.
--csv writes the points of both kinds: docs/predictions.csv. A part of each series is predicted from
another part:

    in a node    8 GPUs from 1, 2 and 4 (16 from 1, 2, 4 and 8)
    batch        more nodes at a batch, from one node at this batch and all of another batch
    nodes        more nodes from one and two

Tables without a time on 2 GPUs, or without one on a single node, make groups of their own. What the
program refuses to predict is printed with the reason and is in no group.

The null is no change per GPU: the time of an iteration on the largest size that was given.
"""

import argparse
import csv
import io
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.record import Record
from hpml_jobs.extras.exchange.csv_records import Rules, read_timings
from hpml_jobs.extras.predict import least_squares, rules
from hpml_jobs.extras.predict.forecast import Prediction, predict
from hpml_jobs.extras.predict.model import errors_of
from hpml_jobs.extras.predict.place import MeasuredPlace
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.rows import make_rows

PUBLISHED = Path(__file__).parents[1] / "data" / "published"
TABLES = ("transformer_xl.csv", "tf_benchmarks.csv")

IN_NODE, IN_LARGE_NODE, BATCH, NODES = (
    "1, 2, 4 -> 8 GPUs in a node",
    "1, 2, 4, 8 -> 16 GPUs in a node",
    "one node and another batch -> more nodes",
    "1, 2 nodes -> more nodes",
)
GROUPS = (IN_NODE, IN_LARGE_NODE, BATCH, NODES)

SHORT_NODE, SHORT_LARGE_NODE, SHORT_NODES = (
    "1, 4 -> 8 GPUs in a node",
    "1, 4, 8 -> 16 GPUs in a node",
    "2, 4 or 4, 8 nodes -> more nodes",
)
SHORT_GROUPS = (SHORT_NODE, SHORT_LARGE_NODE, SHORT_NODES)
"""Series without 2 GPUs, or without one whole node."""

LARGE_ERROR = 0.15
"""An error that must be marked."""


class Series(NamedTuple):
    """The measured places of one model on one kind of GPU."""

    name: str
    observations: tuple[MeasuredPlace, ...]


class Point(NamedTuple):
    """A measured place and its prediction from a part of the others."""

    group: str
    series: str
    observation: MeasuredPlace
    prediction: Prediction

    @property
    def error(self) -> float:
        """The relative error with its sign."""
        return self.prediction.step_s / self.observation.step_s - 1

    @property
    def null_error(self) -> float:
        """The relative error of no change per GPU, with its sign."""
        return self.prediction.null_s / self.observation.step_s - 1

    @property
    def is_in_band(self) -> bool:
        """Whether the band contains the measured time."""
        return (
            self.prediction.low_s <= self.observation.step_s <= self.prediction.high_s
        )


def all_series(files: Iterable[Path]) -> list[Series]:
    """Return the series of some files, in their order."""
    series: dict[tuple[str, str | None], list[MeasuredPlace]] = {}
    for file in files:
        for record in read_timings(file.read_bytes(), file.name, Rules()):
            name = record.cell.workload.name, record.cell.gpu_type
            observation = observation_of(record)
            if observation is None:
                raise SystemExit(
                    f"{file}: {record.slug} has no duration of an iteration"
                )
            series.setdefault(name, []).append(observation)
    return [
        Series(" on ".join(filter(None, name)), tuple(observations))
        for name, observations in series.items()
    ]


def observation_of(record: Record) -> MeasuredPlace | None:
    """Return what one imported row says; None without a duration of an iteration."""
    cell = CellResult(
        slug=record.slug, cell=record.cell, record=record, outcome=Outcome.OK
    )
    (row,) = make_rows([cell])
    return rules.observation(row, [record.slug], is_imported=True)


def points(series: Series) -> Iterator[Point]:
    """Yield every place of a series that a group predicts from others."""
    batches = sorted({o.batch for o in series.observations})
    for batch in batches:
        alike = [o for o in series.observations if o.batch == batch]
        in_node = {o.gpus: o for o in alike if o.nodes == 1}
        full, short = (IN_NODE, IN_LARGE_NODE), (SHORT_NODE, SHORT_LARGE_NODE)
        for group, gpus in zip(full if 2 in in_node else short, (8, 16), strict=True):
            given = [
                size
                for size in (1, 2, 4, 8)
                if size < gpus and (2 in in_node or size != 2)
            ]
            if gpus in in_node and all(size in in_node for size in given):
                yield from _point(
                    group, series, [in_node[n] for n in given], in_node[gpus]
                )
        nodes = {o.nodes: o for o in _whole_nodes(alike)}
        group, starts = (NODES, (1,)) if 1 in nodes else (SHORT_NODES, (2, 4))
        for start in [n for n in starts if {n, 2 * n} <= nodes.keys()][:1]:
            for more in [count for count in nodes if count > 2 * start]:
                yield from _point(
                    group, series, [nodes[start], nodes[2 * start]], nodes[more]
                )
        for other in batches:
            yield from _from_batch(series, alike, other)


def _whole_nodes(observations: Sequence[MeasuredPlace]) -> list[MeasuredPlace]:
    """Return the observations with as many GPUs on each node as the largest has."""
    largest = max(observations, key=lambda o: o.gpus)
    each = largest.gpus_per_node
    return [o for o in observations if o.gpus_per_node == each and largest.nodes > 1]


def _from_batch(
    series: Series, alike: Sequence[MeasuredPlace], other: int
) -> Iterator[Point]:
    """Yield the places on several nodes that another batch has as well."""
    single = [o for o in series.observations if o.nodes == 1]
    others = {(o.gpus, o.nodes): o for o in series.observations if o.batch == other}
    for observation in alike:
        there = others.get((observation.gpus, observation.nodes))
        if observation.nodes > 1 and observation.batch != other and there:
            yield from _point(BATCH, series, [*single, there], observation)


def _point(
    group: str,
    series: Series,
    given: Sequence[MeasuredPlace],
    observation: MeasuredPlace,
) -> Iterator[Point]:
    """Yield a place with its prediction; print the reason where it is refused."""
    (prediction,) = predict(given, [observation])
    if isinstance(prediction, Prediction):
        yield Point(group, series.name, observation, prediction)
    else:
        print(
            f"{series.name}, {observation.gpus} GPUs: {prediction.reason}",
            file=sys.stderr,
        )


def group_table(all_points: Sequence[Point]) -> str:
    """Return a Markdown table with the errors of each group beside those of the null."""
    lines = [
        "| group | points | mean | p90 | worst | null: mean | p90 | worst | in the band | marked |",
        "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for group in (*GROUPS, *SHORT_GROUPS, "all"):
        of_group = [p for p in all_points if group in (p.group, "all")]
        if not of_group:
            continue
        texts = []
        for errors in ([p.error for p in of_group], [p.null_error for p in of_group]):
            figures = errors_of([abs(error) for error in errors])
            texts += [
                f"{100 * f:.1f}" for f in (figures.mean, figures.p90, figures.worst)
            ]
        inside = sum(p.is_in_band for p in of_group)
        marked = sum(bool(p.prediction.remarks) for p in of_group)
        share = f"{inside} ({100 * inside / len(of_group):.0f} %)"
        lines.append(
            f"| {group} | {len(of_group)} | {' | '.join(texts)} | {share} | {marked} |"
        )
    return "\n".join(lines)


def series_table(all_points: Sequence[Point]) -> str:
    """Return a Markdown table with every point; marked ones have an asterisk."""
    lines = [
        "| series | batch | GPUs | error (%) | null (%) | band (%) |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    for point in all_points:
        observation, prediction = point.observation, point.prediction
        half = 100 * (prediction.high_s / prediction.step_s - 1)
        mark = "\\*" if prediction.remarks else ""
        outside = "" if point.is_in_band else " (outside)"
        lines.append(
            f"| {point.series} | {observation.batch} | {observation.gpus}{mark} | "
            f"{100 * point.error:+.1f}{outside} | {100 * point.null_error:+.1f} | +{half:.0f} |"
        )
    return "\n".join(lines)


CSV_HEAD = (
    *(
        "used",
        "group",
        "series",
        "batch",
        "gpus",
        "nodes",
        "error_percent",
        "null_error_percent",
    ),
    *("band_percent", "is_in_band", "is_marked"),
)


def csv_text() -> str:
    """Return every point as CSV: those of the tables that were used, then those held back."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    used = [PUBLISHED / name for name in TABLES]
    for is_used, files in (
        ("yes", used),
        ("no", sorted(PUBLISHED.glob("held_back*.csv"))),
    ):
        all_points = [point for series in all_series(files) for point in points(series)]
        for point in sorted(
            all_points, key=lambda p: (*GROUPS, *SHORT_GROUPS).index(p.group)
        ):
            place, prediction = point.observation, point.prediction
            half = prediction.high_s / prediction.step_s - 1
            percents = (f"{100 * f:.1f}" for f in (point.error, point.null_error, half))
            is_marked = bool(prediction.remarks)
            about = (
                is_used,
                point.group,
                point.series,
                place.batch,
                place.gpus,
                place.nodes,
            )
            writer.writerow(
                (*about, *percents, _yes(point.is_in_band), _yes(is_marked))
            )
    return text.getvalue()


def _yes(claim: bool) -> str:
    return "yes" if claim else "no"


# ---- nested validation: a form is chosen without the hardware that it is judged on ----

Columns = Callable[[int], tuple[float, ...]]

FORMS: dict[str, Columns] = {
    "null": lambda n: (),
    "c + a (N-1)/N": lambda n: (1.0, (n - 1) / n),
    "c + b log2 N": lambda n: (1.0, math.log2(n)),
    "c + a (N-1)/N + b log2 N": lambda n: (1.0, (n - 1) / n, math.log2(n)),
    "c + a (N-1)/N + d (N-1)": lambda n: (1.0, (n - 1) / n, n - 1.0),
    "c + d (N-1)": lambda n: (1.0, n - 1.0),
}
"""Forms of t(N) in a node, the null and those with non-negative coefficients."""


class Task(NamedTuple):
    """Times by GPUs of one node, and the size that a form predicts from them."""

    hardware: str
    times_s: dict[int, float]
    gpus: int
    step_s: float

    def error(self, form: str) -> float:
        """Return the |relative error| of a form fitted to the times."""
        columns = FORMS[form]
        if not columns(1):
            return abs(self.times_s[max(self.times_s)] / self.step_s - 1)
        fit = least_squares.fit(
            [columns(n) for n in self.times_s],
            list(self.times_s.values()),
            [1 / t for t in self.times_s.values()],
        )
        return abs(fit.at(columns(self.gpus)) / self.step_s - 1)


def tasks(series: Series) -> Iterator[Task]:
    """Yield 8 GPUs from 1, 2, 4 and 16 from 1, 2, 4, 8 of each batch."""
    hardware = series.name.rpartition(" on ")[2]
    for batch in sorted({o.batch for o in series.observations}):
        sizes = {
            o.gpus: o.step_s
            for o in series.observations
            if o.batch == batch and o.nodes == 1
        }
        for given, gpus in (((1, 2, 4), 8), ((1, 2, 4, 8), 16)):
            if gpus in sizes and all(n in sizes for n in given):
                yield Task(hardware, {n: sizes[n] for n in given}, gpus, sizes[gpus])


def nested_table(all_tasks: Sequence[Task]) -> str:
    """Return a Markdown table: mean error of each form by hardware, and of the form chosen there.

    The form chosen for a kind of hardware is that with the least mean error on all others.
    """
    kinds = list(dict.fromkeys(task.hardware for task in all_tasks))
    lines = [
        f"| form | {' | '.join(kinds)} | all |",
        f"|:--|{'--:|' * (len(kinds) + 1)}",
    ]
    for form in FORMS:
        figures = [
            _mean(form, [t for t in all_tasks if t.hardware == kind]) for kind in kinds
        ]
        texts = [f"{100 * mean:.2f}" for mean in (*figures, _mean(form, all_tasks))]
        lines.append(f"| {form} | {' | '.join(texts)} |")
    chosen, total = [], 0.0
    for kind in kinds:
        others = [t for t in all_tasks if t.hardware != kind]
        least = min(_mean(form, others) for form in FORMS)
        best = [form for form in FORMS if _mean(form, others) < least + TIE]
        here = [t for t in all_tasks if t.hardware == kind]
        mean = sum(_mean(form, here) for form in best) / len(best)
        total += mean * len(here)
        chosen.append(
            f"{100 * mean:.2f}{f' ({len(best)} tied)' if len(best) > 1 else ''}"
        )
    lines.append(
        f"| chosen on the others | {' | '.join(chosen)} | {100 * total / len(all_tasks):.2f} |"
    )
    return "\n".join(lines)


TIE = 1e-6
"""Difference of mean errors below which forms are equally good; their errors are averaged."""


def _mean(form: str, some: Sequence[Task]) -> float:
    return sum(task.error(form) for task in some) / len(some)


def main() -> None:
    """Print the table of groups, and on request that of all points."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--series", action="store_true", help="print every point")
    parser.add_argument(
        "--nested", action="store_true", help="print forms chosen elsewhere"
    )
    parser.add_argument(
        "--csv", type=Path, help="write every point into this file, print nothing"
    )
    arguments = parser.parse_args()
    if arguments.csv:
        arguments.csv.write_text(csv_text())
        return
    some = all_series(arguments.files or [PUBLISHED / name for name in TABLES])
    all_points = [point for series in some for point in points(series)]
    print(group_table(all_points))
    if arguments.series:
        for group in (*GROUPS, *SHORT_GROUPS):
            of_group = [point for point in all_points if point.group == group]
            if of_group:
                print(f"\n{group}\n\n{series_table(of_group)}")
    if arguments.nested:
        print(f"\n{nested_table([task for series in some for task in tasks(series)])}")
    large = [
        p for p in all_points if abs(p.error) > LARGE_ERROR and not p.prediction.remarks
    ]
    print(f"\nerrors above {LARGE_ERROR:.0%} without a mark: {len(large)}")


if __name__ == "__main__":
    main()
