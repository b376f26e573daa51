"""The gap to the ideal speedup: its table, its sentence, a picture with a step for each cause."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from hpml_jobs.report.frame import captions, picture
from hpml_jobs.report.frame.captions import mark, why_unsplit
from hpml_jobs.report.frame.numbers import significant, three_digits
from hpml_jobs.report.frame.picture import Axes, Panel, Picture, cell_label, cut, panels
from hpml_jobs.report.frame.table import (
    Column,
    Table,
    TableText,
    columns_of,
    item_table,
    line_from,
    row_name,
)
from hpml_jobs.results.cells import Place
from hpml_jobs.results.gap.causes import GapCause
from hpml_jobs.results.gap.parts import Gap, GapPart
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row


def digits(value: float) -> str:
    """Return a part with two decimals at most."""
    return significant(value, 3, most_decimals=2)


def _with_interval(part: GapPart) -> str:
    if part.low is None or part.high is None:
        return digits(part.value)
    return f"{digits(part.value)} [{digits(part.low)}, {digits(part.high)}]"


TABLE = (
    "Each part is the speedup that would be gained without one cause; they add up. Unexplained is "
    "the rest; below zero it is noise, or {units} compute faster than {reference}."
)

PART = Column(
    "",
    _with_interval,
    doubt="doubts_parts",
    parts={"": "value", "_low": "low", "_high": "high"},
)


class GapLine(NamedTuple):
    """The parts of a row's gap to the ideal speedup; the sentence is in the files only."""

    strategy: str
    gpus: int
    nodes: int
    treatment: str
    batch: int
    speedup: Annotated[float, Column("speedup", three_digits, doubt="is_doubtful")]
    ideal: Annotated[float, Column("ideal", three_digits)]
    missing: float
    exchange: Annotated[GapPart | None, PART._replace(head="communication")]
    loader: Annotated[GapPart | None, PART._replace(head="data wait")]
    waiting: Annotated[
        GapPart | None, PART._replace(head="waiting for the slowest process")
    ]
    cpus: Annotated[GapPart | None, PART._replace(head="waiting for a free CPU")]
    unexplained: Annotated[GapPart | None, PART._replace(head="unexplained")]
    late: str
    sentence: str
    is_doubtful: bool
    doubts_parts: bool


def gap_table(group: ConditionGroup) -> Table | None:
    """Return the parts of every gap; None without one."""
    rows = [row for row in group.timed if row.place in group.gaps]
    if not rows:
        return None
    items = []
    for row in rows:
        gap = group.gaps[row.place]
        line = line_from(
            GapLine,
            gap,
            row,
            **{cause.name.lower(): gap.parts.get(cause) for cause in GapCause},
            strategy=row.strategy.value,
            batch=row.batch_per_gpu,
            sentence=gap_sentence(row, gap),
        )
        items.append((row_name(group, row), line))
    caption = TABLE.format(
        units=captions.units(group.device),
        reference=captions.reference_text(rows, group.device),
    )
    text = TableText("gap", "Gap to the ideal speedup", "", (caption,))
    reasons = [
        (f"not replayed: {gap.unproven}", place)
        for place, gap in group.gaps.items()
        if gap.unproven
    ]
    notes = [
        captions.EXPLAINED if any(line.doubts_parts for _, line in items) else "",
        *captions.by_reason(reasons, group.device),
    ]
    return item_table([group], text, items, columns_of(GapLine), notes)


NEARLY_IDEAL = 0.95
"""The share of the ideal speedup from which there is nothing to explain."""


LARGE = 0.15
"""The share of what is missing from which a part is named; the picture has all."""


def gap_sentence(row: Row, gap: Gap) -> str:
    """Return the causes that take large parts of the ideal speedup; empty near the ideal."""
    if gap.speedup >= NEARLY_IDEAL * gap.ideal:
        return ""
    late, *_ = gap.late.partition(" on ")
    ranks = f" ({late})" * late.startswith("rank")
    least = LARGE * gap.missing
    causes = [
        cause
        for cause, part in sorted(gap.parts.items(), key=lambda item: -item[1].value)
        if part.value >= least and cause is not GapCause.UNEXPLAINED
    ]
    speedup = mark(three_digits(gap.speedup), is_doubtful=gap.is_doubtful)
    unexplained = gap.parts[GapCause.UNEXPLAINED].value
    rest = gap.missing - sum(gap.parts[cause].value for cause in causes)
    names = {c: f"{c}{ranks * (c is GapCause.WAITING)}" for c in causes}
    texts = [f"about {digits(gap.parts[c].value)} to {names[c]}" for c in causes]
    if not gap.is_split:
        texts.append(f"not all causes are measured: {why_unsplit(row)}")
    else:
        if unexplained >= least:
            texts.append(f"about {digits(unexplained)} unexplained")
            rest -= unexplained
        if rest <= -least:
            texts = [f"mostly to {', then to '.join(names.values())}"]  # by noise
        elif rest >= least / 3:
            texts.append("others smaller")
    lost = mark(digits(gap.missing), is_doubtful=gap.doubts_parts)
    return (
        f"Why {speedup} and not {gap.ideal:.4g} times: {lost} is lost, "
        f"{', '.join(texts)}."
    )


PICTURE = (
    "Each bar: the speedup that is lost to a cause. Communication: messages, and the computing "
    "that they slow down (Comm of Table 2: messages and waiting). Unexplained: noise, or what was "
    "not measured; below zero: noise, or processes compute faster than one. Lines: likely ranges."
)


def waterfall(cells: Sequence[tuple[ConditionGroup, Place, Gap]]) -> Picture | None:
    """Plot the parts between the ideal and the measured speedup; None without a cell."""
    among = len({group.name for group, *_ in cells})
    gap_panels, missing = cut(
        [
            Panel(
                cell_label(group, place, is_doubtful=gap.doubts_parts, among=among), gap
            )
            for group, place, gap in cells
        ]
    )

    def draw(axis: Axes, panel: Panel[Gap]) -> list[str]:
        gap = panel.data
        at = gap.ideal
        bars = [(f"ideal {at:.4g}", 0.0, at, picture.PALE)]
        for cause, part in gap.parts.items():
            if part.low is not None and part.high is not None:
                axis.hlines(
                    len(bars),
                    at - part.high,
                    at - part.low,
                    color=picture.TEXT,
                    zorder=3,
                )
            at -= part.value
            colour = (
                picture.MIDDLE_GREY if cause is GapCause.UNEXPLAINED else picture.RED
            )
            bars.append((f"{cause} {digits(part.value)}", at, part.value, colour))
        bars.append(
            (f"measured {three_digits(gap.speedup)}", 0.0, gap.speedup, picture.BLUE)
        )
        labels, lefts, widths, colours = zip(*bars, strict=True)
        axis.barh(range(len(bars)), widths, left=lefts, color=colours, lw=0)
        axis.set_yticks(range(len(bars)), labels)
        axis.set_xlabel("speedup")
        axis.grid(visible=False, axis="y")
        axis.invert_yaxis()
        return [f"{panel.title}: {', '.join(labels)}"]

    return panels(
        "Gap to the ideal speedup",
        gap_panels,
        draw,
        caption=[PICTURE],
        legend={
            "ideal": picture.PALE,
            "taken by a cause": picture.RED,
            "unexplained": picture.MIDDLE_GREY,
            "measured": picture.BLUE,
        },
        missing=missing,
        columns=2,
        height=2.2,
    )
