"""Full table of scaling laws: Amdahl, Gustafson and USL as descriptions of the measured points."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from hpml_jobs.checks import Level
from hpml_jobs.checks.result import Affected
from hpml_jobs.predict.scaling_laws import LawFit, fit_amdahl, fit_gustafson, fit_usl
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables import ratios
from hpml_jobs.report.tables.builder import Column, Columns, TableText, column, item_table
from hpml_jobs.report.tables.ratios import LineKey, Ratio
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.numbers import percent, significant

TITLE = "Scaling laws: descriptions, not forecasts"
CAPTION = (
    "Speedup S on n times the {units} of the reference. Amdahl (1967): S = 1 / (s + (1 - s) / n). "
    "Gustafson (1988): S = n - s (n - 1). USL (Gunther, 2007): S = n / (1 + a (n - 1) + b n (n - "
    "1)), contention a, coherence b. Serial shares s, of the time on one GPU (Amdahl) and on n "
    "(Gustafson), are of strong scaling only: at a fixed batch per GPU, more GPUs synchronize less "
    "often. Least squares of law / measured - 1, no coefficient below 0. "
    "Residual: its root mean square; a dash where as many coefficients as points leave none."
)
NO_FORECAST = (
    "The laws describe these points. They are no forecasts, because they know neither nodes nor "
    "links: fitted on 1, 2 and 4 GPUs of 24 published series, they miss the time on 8 GPUs by "
    "10.7 % (Amdahl), 3.5 % (Gustafson) and 10.7 % (USL) on average, and no change per GPU misses "
    "it by 4.1 %; beyond one node, Amdahl misses by 24.7 %, at worst by 84.2 % "
    "(docs/choose_predict.md). hpml-jobs predict states the error of its figures."
)


class DescribedLine(NamedTuple):
    """The laws fitted to a line of speedups; `gpus` are its sizes, the reference first."""

    key: LineKey
    scaling: str
    batch_is: str
    gpus: tuple[int, ...]
    amdahl: LawFit | None
    gustafson: LawFit | None
    usl: LawFit | None

    @property
    def label(self) -> str:
        """Its strategy, treatment and batch: `ddp, batch 32 per GPU`."""
        names = (self.key.strategy, self.key.treatment, self.batch_is.format(self.key.batch))
        return ", ".join(filter(None, names))


def laws(group: ConditionGroup) -> Table | None:
    """Return the laws that describe each line of speedups; None without one."""
    lines = list(_lines(group))
    if not lines:
        return None
    caption = CAPTION.format(units=captions.units(group.device))
    runs = captions.runs(group.timed)
    text = TableText("laws", TITLE, "E1", (caption, NO_FORECAST, runs), on_screen=False)
    return item_table([group], text, ((line.label, line) for line in lines), _HEADS)


def _lines(group: ConditionGroup) -> Iterator[DescribedLine]:
    """Yield the lines of weak scaling, then those of strong scaling."""
    kinds = {
        "weak": (f"batch {{}} per {captions.unit(group.device)}", ratios.weak(group)),
        "strong": ("global batch {}", ratios.strong(group)),
    }
    for scaling, (batch_is, of_kind) in kinds.items():
        for key, members in ratios.lines(of_kind).items():
            kept = _by_growth(group, members)
            points = [(ratio.growth, ratio.speedup) for ratio in kept]
            shares = fit_amdahl(points), fit_gustafson(points)
            fits = (*(shares if scaling == "strong" else (None, None)), fit_usl(points))
            if any(fits):
                sizes = (kept[0].reference.gpus, *(ratio.row.gpus for ratio in kept))
                yield DescribedLine(key, scaling, batch_is, sizes, *fits)


def _by_growth(group: ConditionGroup, members: Sequence[Ratio]) -> list[Ratio]:
    """Return the ratio of each size above the reference's, each on the fewest nodes.

    Those with a failed check are left out: their table, Scaling, shows them.
    """

    def is_usable(row: Row) -> bool:
        return group.worst(row, Affected.TIME) is not Level.FAIL

    fewest: dict[int, Ratio] = {}
    for ratio in sorted(members, key=lambda ratio: (ratio.row.gpus, ratio.row.nodes)):
        if ratio.growth > 1 and is_usable(ratio.row) and is_usable(ratio.reference):
            fewest.setdefault(ratio.row.gpus, ratio)
    return list(fewest.values())


def _coefficient(
    name: str, head: str, law: Callable[[DescribedLine], LawFit | None], at: int = 0
) -> Column[DescribedLine]:
    def value(line: DescribedLine) -> float | None:
        fitted = law(line)
        return fitted.coefficients[at] if fitted else None

    return column(name, head, value, lambda v: significant(v, 3, most_decimals=5))


def _residual(name: str, law: Callable[[DescribedLine], LawFit | None]) -> Column[DescribedLine]:
    def value(line: DescribedLine) -> float | None:
        fitted = law(line)
        return fitted.residual if fitted else None

    return column(name, "residual", value, lambda v: f"{percent(v)} %")


_HEADS: tuple[Columns[DescribedLine], ...] = (
    Columns(
        "",
        (
            column("strategy", "", lambda line: line.key.strategy),
            column("treatment", "", lambda line: line.key.treatment),
            column("batch", "", lambda line: line.key.batch),
        ),
    ),
    Columns("scaling", (column("scaling", "", lambda line: line.scaling),), words=True),
    Columns(
        "sizes",
        (column("sizes", "", lambda line: ", ".join(map(str, line.gpus))),),
        words=True,
    ),
    Columns(
        "Amdahl",
        (
            _coefficient("amdahl_serial_share", "serial s", lambda line: line.amdahl),
            _residual("amdahl_residual", lambda line: line.amdahl),
        ),
    ),
    Columns(
        "Gustafson",
        (
            _coefficient("gustafson_serial_share", "serial s", lambda line: line.gustafson),
            _residual("gustafson_residual", lambda line: line.gustafson),
        ),
    ),
    Columns(
        "USL",
        (
            _coefficient("usl_contention", "a", lambda line: line.usl),
            _coefficient("usl_coherence", "b", lambda line: line.usl, 1),
            _residual("usl_residual", lambda line: line.usl),
        ),
    ),
)
