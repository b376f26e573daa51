"""Plots of loss and time by iteration: a panel for each batch, a line for each row."""

from collections.abc import Callable, Iterator
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from hpml_jobs.report.merge import curves
from hpml_jobs.report.merge.curves import Curve, NoCurveError
from hpml_jobs.report.merge.rows import Row, Setup, setup_order
from hpml_jobs.report.plots import style
from hpml_jobs.report.plots.picture import Picture, listed, not_drawn, sentences
from hpml_jobs.report.plots.style import Look
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.report.text.captions import full_label, unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS, SMOOTH_POINTS = 2_000, 200
"""The most points of a thin and of a thick line: more are invisible, but enlarge the SVG."""

WIDE_RANGE = 20
"""If the losses of a panel fall below 1/20, all panels have a logarithmic scale."""

RUN = (
    "Thin: {thin}; thick: {how} over a fortieth of the run. All epochs of training in order; "
    "first run of each place. {what}."
)
LOSS = "Loss: mean over ranks"
STEPS = "Time: longest of all ranks, waiting for data included; an epoch begins with a peak"


class Panel(NamedTuple):
    """The runs at one batch in one group, by the label of their row."""

    title: str
    runs: dict[str, Curve]


class Chosen(NamedTuple):
    """What is drawn: panels, a look for each label, and a sentence on what is omitted."""

    panels: list[Panel]
    looks: dict[str, Look]
    left_out: str


def loss(report: Report) -> Picture | None:
    """Plot the training loss by iteration; None if no run has curves."""
    chosen = choose(report)
    if chosen is None:
        return None

    def line(axis: "Axes", curve: Curve, look: Look) -> None:
        _line(axis, curve.loss, look, _mean)

    figure = _figure(chosen, "training loss", line)
    spans = [_span(axis) for axis in figure.axes]
    wide = any(0 < least < most / WIDE_RANGE for least, most in spans)
    for axis, (least, most) in zip(figure.axes, spans, strict=True):
        _fit(axis, least, most, logarithmic=wide and least > 0)
    ends = _by_run(chosen, lambda curve: float(curve.loss[-max(1, len(curve.loss) // 40) :].mean()))
    alt = f"Training loss by iteration, mean over the last fortieth: {ends}."
    caption = RUN.format(thin=_thin(chosen), how="mean", what=LOSS)
    return Picture("Loss by iteration", figure, alt, sentences(caption, chosen.left_out))


def steps(report: Report) -> Picture | None:
    """Plot the time of each iteration; None if no run has curves."""
    chosen = choose(report)
    if chosen is None:
        return None

    def line(axis: "Axes", curve: Curve, look: Look) -> None:
        _line(axis, 1e3 * curve.step_s, look, _median)
        style.by_ratio(axis)

    figure = _figure(chosen, "ms per iteration", line)
    medians = _by_run(chosen, lambda curve: 1e3 * _median(curve.step_s))
    alt = f"Time per iteration, median in ms: {medians}."
    caption = RUN.format(thin=_thin(chosen), how="median", what=STEPS)
    return Picture("Time per iteration", figure, alt, sentences(caption, chosen.left_out))


def _by_run(chosen: Chosen, value: Callable[[Curve], float]) -> str:
    """Return a number of each run that is drawn, with its panel and label."""
    return listed(
        [
            f"{panel.title} {label} {value(curve):.3g}"
            for panel in chosen.panels
            for label, curve in panel.runs.items()
        ]
    )


def choose(report: Report) -> Chosen | None:
    """Return the panels that fit, and in each the rows that colours can distinguish."""
    places = [
        (group, batch, row)
        for group in report.groups
        for batch in sorted({row.batch_per_gpu for row in group.source.rows})
        for row in group.source.rows
        if row.batch_per_gpu == batch and _has_curve(group, row)
    ]
    setups = {full_label(row.setup, group.source.device): row.setup for group, _, row in places}
    kept = _kept(setups)
    panels: dict[str, Panel] = {}
    omitted = dict.fromkeys(label for label in setups if label not in kept)
    for group, batch, row in places:
        label, title = full_label(row.setup, group.source.device), _title(report, group, batch)
        if len(panels) == style.PANELS and title not in panels:
            omitted[title] = None
        elif label in kept and (curve := _curve(group, row)):
            panels.setdefault(title, Panel(title, {})).runs[label] = curve
    if not panels:
        return None
    return Chosen(list(panels.values()), kept, not_drawn(list(omitted), "curves.csv"))


def _title(report: Report, group: ReportGroup, batch: int) -> str:
    title = f"batch {batch} per {unit(group.source.device)}"
    return f"{report.name(group)}, {title}" if report.several else title


def _has_curve(group: ReportGroup, row: Row) -> bool:
    return any(map(curves.has_curve, group.source.runs(row)))


def _curve(group: ReportGroup, row: Row) -> Curve | None:
    """Return the curve of the row's first run that has one."""
    for result in group.source.runs(row):
        try:
            return curves.read(result)
        except NoCurveError:  # reported in the notes of the table of curves
            continue
    return None


def _kept(setups: dict[str, Setup]) -> dict[str, Look]:
    """Return labels with their looks: all, or the baseline and the rows with the most GPUs."""

    def rank(label: str) -> tuple[bool, int]:
        return not setups[label].is_baseline, -setups[label].gpus

    first = sorted(sorted(setups), key=rank)[: style.LINES]
    ordered = sorted(first, key=lambda label: setup_order(setups[label]))
    return style.looks({label: setups[label].strategy.value for label in ordered})


def _figure(chosen: Chosen, what: str, line: "Callable[[Axes, Curve, Look], None]") -> "Figure":
    number = len(chosen.panels)
    figure, axes = style.panels(number, columns=style.even(number, 3))
    for axis, panel in zip(axes, chosen.panels, strict=True):
        axis.set_title(panel.title, loc="left")
        axis.set_xlabel("iteration")
        for label, curve in panel.runs.items():
            line(axis, curve, chosen.looks[label])
    for axis in style.left_ones(axes):
        axis.set_ylabel(what)
    shown = {label: chosen.looks[label] for label in _shown(chosen)}
    style.line_legend(figure, shown, markers=False)
    return figure


def _shown(chosen: Chosen) -> Iterator[str]:
    drawn = {label for panel in chosen.panels for label in panel.runs}
    return (label for label in chosen.looks if label in drawn)


def _thin(chosen: Chosen) -> str:
    """Return in words which iterations the thin lines show."""
    lengths = (len(curve.loss) for panel in chosen.panels for curve in panel.runs.values())
    steps = sorted({_every(length) for length in lengths} - {1})
    if not steps:
        return "every iteration"
    in_one = " to ".join(map(str, dict.fromkeys((steps[0], steps[-1]))))
    return f"every iteration, or one in {in_one} of runs with more than {POINTS:,}"


def _every(iterations: int) -> int:
    """Return k if every k-th iteration is drawn; 1 if all are."""
    return ceil(iterations / POINTS)


def _line(axis: "Axes", values: Any, look: Look, of: Callable[[Any], float]) -> None:
    """Draw the values as a thin line, and their moving mean or median (`of`) as a thick one."""
    every = _every(len(values))
    axis.plot(
        range(1, len(values) + 1, every), values[::every], color=look.colour, lw=0.5, alpha=0.3
    )
    half = max(1, len(values) // 80)
    at = range(0, len(values), ceil(len(values) / SMOOTH_POINTS))
    smooth = [of(values[max(0, i - half) : i + half + 1]) for i in at]
    axis.plot([i + 1 for i in at], smooth, color=look.colour, ls=look.dashes, lw=1.7)


def _mean(values: Any) -> float:
    return float(values.mean())


def _median(values: Any) -> float:
    import numpy as np  # noqa: PLC0415 - heavy

    return float(np.median(values))


def _span(axis: "Axes") -> tuple[float, float]:
    """Return the least and the greatest value of a panel's thick lines."""
    import numpy as np  # noqa: PLC0415 - heavy

    thick = [line.get_ydata() for line in axis.lines if line.get_linewidth() > 1]
    values = np.concatenate([np.asarray(line, dtype=float) for line in thick])
    return float(values.min()), float(values.max())


def _fit(axis: "Axes", least: float, most: float, *, logarithmic: bool) -> None:
    """Fit the y axis to the thick lines: clip high peaks of thin lines, show very small losses."""
    if logarithmic:
        style.by_ratio(axis)
        axis.set_ylim(bottom=max(axis.get_ylim()[0], least / 5))
    elif axis.get_ylim()[1] > 2 * most > 0:
        axis.set_ylim(top=1.3 * most)
