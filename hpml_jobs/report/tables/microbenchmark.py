"""Full tables of the all-reduce microbenchmark: every size, and the line through them."""

from statistics import median
from typing import NamedTuple

from hpml_jobs.core import formulas
from hpml_jobs.core.formulas import AlphaBeta, fit_alpha_beta
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import counted
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Setup
from hpml_jobs.report.table import Block, Line, Sheet, Table
from hpml_jobs.report.tables.builder import Columns, TableText, column, item_table
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.numbers import DASH, count, gb_per_s, milliseconds, percent, significant

POINTS = (
    "All-reduce of one message on idle devices after E3, in each cell's own allocation. ms: "
    "median of the trials; the slowest rank counts. GB/s (1e9 bytes): busbw = 2(N-1)/N x bytes / "
    "time. Medians over {cells}. * marks sizes that the cells send."
)
FIT = (
    "T = alpha + bytes / speed: least squares on relative errors over the medians of all sizes. "
    "Accepted if, from 64 KiB up, the median residual is <= 10 % and the worst <= 30 %."
)


class Allocation(NamedTuple):
    """GPUs on nodes, and the records of all cells that ran the microbenchmark there."""

    gpus: int
    nodes: int
    records: tuple[Record, ...]

    @property
    def times_s(self) -> dict[int, float]:
        """Median over cells of their median seconds, by message bytes."""
        times_by_size: dict[int, list[float]] = {}
        for record in self.records:
            for size, time_s in (
                record.microbenchmark.times_s if record.microbenchmark else {}
            ).items():
                times_by_size.setdefault(size, []).append(time_s)
        return {size: median(times) for size, times in sorted(times_by_size.items())}

    @property
    def fit(self) -> AlphaBeta | None:
        """The line through the medians; None with fewer than two sizes."""
        return fit_alpha_beta(self.times_s) if len(self.times_s) > 1 else None


def allocations(group: ConditionGroup) -> list[Allocation]:
    """Return every allocation with a microbenchmark, by GPUs and nodes."""
    records_by_place: dict[tuple[int, int], list[Record]] = {}
    for row in group.timed:
        for record in group.records(row):
            if record.microbenchmark and record.microbenchmark.points:
                records_by_place.setdefault((row.gpus, row.nodes), []).append(record)
    return [
        Allocation(*place, tuple(records)) for place, records in sorted(records_by_place.items())
    ]


def _label(group: ConditionGroup, allocation: Allocation) -> str:
    setup = Setup(allocation.gpus, allocation.nodes, allocation.records[0].cell.strategy)
    return captions.place_label(setup, group.device)


def points(group: ConditionGroup) -> Table | None:
    """Return time and bus bandwidth by message size; None without a microbenchmark."""
    probed_allocations = allocations(group)
    if not probed_allocations:
        return None
    times = [allocation.times_s for allocation in probed_allocations]
    sent = {
        point.bytes
        for allocation in probed_allocations
        for record in allocation.records
        for point in (record.microbenchmark.points if record.microbenchmark else ())
        if point.sent
    }
    cells = ", ".join(
        f"{counted(len(allocation.records), 'cell')} on {_label(group, allocation)}"
        for allocation in probed_allocations
    )
    return Table(
        label="microbenchmark",
        title="Microbenchmark: all-reduce",
        corner="bytes",
        blocks=tuple(
            Block(head=_label(group, allocation), columns=("ms", "GB/s"))
            for allocation in probed_allocations
        ),
        lines=tuple(
            Line(
                label=f"{count(size)}{' *' if size in sent else ''}",
                texts=tuple(
                    text
                    for allocation, at in zip(probed_allocations, times, strict=True)
                    for text in _texts(allocation.gpus, size, at.get(size))
                ),
            )
            for size in sorted({size for by_size in times for size in by_size})
        ),
        caption=(POINTS.format(cells=cells),),
        setting=captions.setting(group),
        on_screen=False,
        sheet=_sheet(group),
    )


def _texts(gpus: int, size: int, time_s: float | None) -> tuple[str, str]:
    if not time_s:
        return DASH, DASH
    return milliseconds(time_s), gb_per_s(formulas.bus_gb_per_s(size, time_s, gpus))


def _sheet(group: ConditionGroup) -> Sheet:
    """Return every point of every cell."""
    rows = [
        (
            *(record.slug, record.cell.gpus, record.cell.nodes, point.bytes, point.sent),
            *(point.trials, point.median_s, point.min_s, point.max_s),
            formulas.bus_gb_per_s(point.bytes, point.median_s, record.cell.gpus)
            if point.median_s
            else None,
        )
        for allocation in allocations(group)
        for record in allocation.records
        for point in (record.microbenchmark.points if record.microbenchmark else ())
    ]
    names = "cell gpus nodes bytes sent trials median_s min_s max_s bus_gb_per_s"
    return Sheet(columns=tuple(names.split()), rows=tuple(rows))


class Fitted(NamedTuple):
    """An allocation with the line through its points."""

    allocation: Allocation
    line: AlphaBeta

    @property
    def result(self) -> str:
        """Whether the line is accepted, and what is used instead if not."""
        if self.line.accepted:
            return "accepted"
        residuals = (self.line.median_residual, self.line.worst_residual)
        middle, worst = (percent(share) for share in residuals)
        return (
            f"not accepted (median residual {middle} %, worst {worst} %): "
            "medians are interpolated instead"
        )


def fits(group: ConditionGroup) -> Table | None:
    """Return latency and speed of the fitted lines; None if no line can be fitted."""
    fitted_lines = [
        Fitted(allocation, line) for allocation in allocations(group) if (line := allocation.fit)
    ]
    if not fitted_lines:
        return None
    text = TableText("fit", "Microbenchmark: fit", "", (FIT,), on_screen=False)
    return item_table(
        [group],
        text,
        ((_label(group, fitted.allocation), fitted) for fitted in fitted_lines),
        _FIT_HEADS,
    )


def _speed(fitted: Fitted) -> float | None:
    slope = fitted.line.beta_s_per_byte
    return 1 / slope / 1e9 if slope > 0 else None


def _residual(share: float) -> float | None:
    return None if share == float("inf") else share


_FIT_HEADS: tuple[Columns[Fitted], ...] = (
    Columns(
        "",
        (
            column("gpus", "", lambda fitted: fitted.allocation.gpus),
            column("nodes", "", lambda fitted: fitted.allocation.nodes),
            column("alpha_s", "", lambda fitted: fitted.line.alpha_s),
            column("beta_s_per_byte", "", lambda fitted: fitted.line.beta_s_per_byte),
        ),
    ),
    Columns(
        "alpha, us",
        (column("", "", lambda f: f.line.alpha_s, lambda s: significant(1e6 * s, 3)),),
    ),
    Columns("1/beta, GB/s", (column("algorithm_gb_per_s", "", _speed, gb_per_s),)),
    Columns(
        "residual, %",
        (
            column(
                "median_residual", "median", lambda f: _residual(f.line.median_residual), percent
            ),
            column("worst_residual", "worst", lambda f: _residual(f.line.worst_residual), percent),
        ),
    ),
    Columns("result", (column("result", "", lambda f: f.result),), words=True),
)
