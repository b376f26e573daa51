"""Picture of the profiler's results: how the time of each cell divides into activities."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.core.measurements import ProfilerSummary
from hpml_jobs.report.plots import style
from hpml_jobs.report.plots.picture import Picture, listed, not_drawn, sentences
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.report.text.captions import full_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BARS = 24
"""The most bars in a picture."""

CAPTION = (
    "torch.profiler over some iterations of one rank of the first run; shares of their time. "
    "Overlap: computation and communication at the same time; idle: neither."
)


class Shares(NamedTuple):
    """The profiler's window of one place divided into shares, which add up to 1."""

    label: str
    compute: float
    overlap: float
    comm: float
    idle: float

    @classmethod
    def of(cls, label: str, trace: ProfilerSummary) -> "Shares":
        """Return the shares of computation only, overlap, communication only, and idle time."""
        parts_s = (
            trace.compute_s - trace.overlap_s,
            trace.overlap_s,
            trace.comm_s - trace.overlap_s,
            trace.idle_s,
        )
        return cls(label, *(part / trace.window_s for part in parts_s))


class Look(NamedTuple):
    """A part of a bar: its name, its width, its colour, and the colour of the number in it."""

    name: str
    share: Callable[[Shares], float]
    colour: str
    ink: str


LOOKS = (
    Look("computation", lambda shares: shares.compute, style.BLUE, style.ON_STRONG),
    Look("overlap", lambda shares: shares.overlap, style.SKY, style.ON_WEAK),
    Look("communication", lambda shares: shares.comm, style.RED, style.ON_STRONG),
    Look("idle", lambda shares: shares.idle, style.PALE, style.ON_WEAK),
)
"""The parts of a bar, from the left."""


def profile(report: Report) -> Picture | None:
    """Plot the stacked shares of each cell; None if no cell was profiled."""
    all_shares = [shares for group in report.groups for shares in _of_group(report, group)]
    if not all_shares:
        return None
    shown = all_shares[:BARS]
    figure, (axis,) = style.panels(1, height=0.6 + 0.3 * len(shown))
    left = [0.0] * len(shown)
    for look in LOOKS:
        widths = [100 * look.share(shares) for shares in shown]
        axis.barh(range(len(shown)), widths, left=left, color=look.colour, height=0.72)
        _numbers(axis, widths, left, look.ink)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axis.set_yticks(range(len(shown)), [shares.label for shares in shown])
    axis.set_ylim(len(shown) - 0.4, -0.6)  # first row at the top
    axis.set_xlim(0, 100)
    axis.set_xlabel("% of the time")
    axis.grid(visible=False)
    names = {look.name: look.colour for look in LOOKS}
    style.legend(figure, names)
    missing = [shares.label for shares in all_shares[BARS:]]
    caption = sentences(CAPTION, not_drawn(missing, "profiler.csv"))
    parts = [
        f"{shares.label} {100 * shares.compute:.0f} % computation only, "
        f"{100 * shares.comm:.0f} % communication only"
        for shares in shown
    ]
    alt = f"Time by activity: {listed(parts)}."
    return Picture("Time by activity, from the profiler", figure, alt, caption)


def _of_group(report: Report, group: ReportGroup) -> list[Shares]:
    all_shares = []
    for row in group.source.rows:
        ranks = [rank for record in group.source.records(row) for rank in record.ranks]
        trace = next(
            (rank.profiler for rank in ranks if rank.profiler and rank.profiler.window_s), None
        )
        if trace:
            label = f"{full_label(row.setup, group.source.device)} b{row.batch_per_gpu}"
            label = f"{report.name(group)}: {label}" if report.several else label
            all_shares.append(Shares.of(label, trace))
    return all_shares


def _numbers(axis: "Axes", widths: list[float], left: list[float], ink: str) -> None:
    """Write each part's percentage in its middle if the part is wide enough."""
    for row, (width, start) in enumerate(zip(widths, left, strict=True)):
        if width >= 5:
            axis.text(
                start + width / 2, row, f"{width:.0f}", color=ink, ha="center", va="center", size=8
            )
