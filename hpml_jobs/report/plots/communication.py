"""Picture of computation against communication: total, and the part that nothing hides."""

from collections.abc import Callable, Sequence
from operator import attrgetter

from hpml_jobs.checks.result import Affected
from hpml_jobs.report.merge.figures import Figures
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.plots import cells, style
from hpml_jobs.report.plots.cells import Bar
from hpml_jobs.report.plots.picture import Picture, listed, not_drawn, sentences
from hpml_jobs.report.report import Report
from hpml_jobs.report.text.numbers import seconds

CAPTION = (
    "E2, seconds of the rank that waits least for others, medians over runs; bars: least and most "
    "of the runs. Computation: copies to the device, forward, backward, optimizer. Communication: "
    "seconds in which any collective is active; exposed: the part that no computation hides, "
    "waiting for later ranks included."
)
REPORTED = "Imported: as reported by the source, which does not say what is hidden."


def communication(report: Report) -> Picture | None:
    """Plot computation and communication of each cell; None if nothing was instrumented."""
    bars = cells.bars(report, Affected.SPLIT, _is_split)
    if not bars:
        return None
    shown = bars[: cells.BARS]
    figure, (axis,) = style.panels(1, height=0.3 + 1.3 * cells.height(len(shown)))
    places = range(len(shown))
    above, below = [place - 0.2 for place in places], [place + 0.2 for place in places]
    compute = [_value(bar.row, _compute) for bar in shown]
    exposed = [_value(bar.row, _exposed) for bar in shown]
    totals = [_value(bar.row, _total) for bar in shown]
    hidden = [max(0.0, total - part) for total, part in zip(totals, exposed, strict=True)]
    axis.barh(above, compute, height=0.36, color=style.BLUE, lw=0)
    axis.barh(below, exposed, height=0.36, color=style.RED, lw=0)
    axis.barh(below, hidden, left=exposed, height=0.36, color=style.PALE, lw=0)
    ends = [
        (place, *ends)
        for at, of in ((above, _compute), (below, _total))
        for place, bar in zip(at, shown, strict=True)
        if (ends := _ends(bar.row, of))
    ]
    if ends:
        axis.hlines(*zip(*ends, strict=True), color=style.TEXT, lw=1)
    cells.label(axis, [bar.label for bar in shown], "seconds per epoch")
    style.legend(
        figure,
        {
            "computation": style.BLUE,
            "exposed communication": style.RED,
            "hidden communication": style.PALE,
        },
    )
    missing = [bar.label for bar in bars[len(shown) :]]
    caption = sentences(
        CAPTION,
        REPORTED if any(bar.group.imported for bar in shown) else "",
        cells.MARKED if any(bar.is_marked for bar in shown) else "",
        not_drawn(missing, "communication.csv"),
    )
    return Picture("Computation and communication", figure, _alt(shown), caption)


_compute, _exposed = attrgetter("compute_s"), attrgetter("comm_exposed_s")


def _total(values: Figures) -> float | None:
    """Return all communication; of imported timings only the exposed part is known."""
    return values.comm_exposed_s if values.comm_total_s is None else values.comm_total_s


def _is_split(row: Row) -> bool:
    return row.gpus > 1 and None not in (_compute(row.figures), _exposed(row.figures))


def _value(row: Row, of: Callable[[Figures], float | None]) -> float:
    return of(row.figures) or 0.0


def _ends(row: Row, of: Callable[[Figures], float | None]) -> tuple[float, float] | None:
    """Return the least and the most of the runs; None with a single run."""
    values = [value for run in row.runs if (value := of(run)) is not None]
    return (min(values), max(values)) if len(values) > 1 else None


def _alt(shown: Sequence[Bar]) -> str:
    texts = [
        f"{bar.label} computation {seconds(_value(bar.row, _compute))} s, communication "
        f"{seconds(_value(bar.row, _total))} s, of it exposed "
        f"{seconds(_value(bar.row, _exposed))} s"
        for bar in shown
    ]
    return f"Per epoch: {listed(texts, '; ')}."
