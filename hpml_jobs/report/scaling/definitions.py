"""The table Speedup by definition: everything that reports call a speedup, side by side."""

from collections.abc import Iterator
from typing import Annotated, NamedTuple

from hpml_jobs.core import formulas
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import Number, Shown, TableText, columns_of, line_table
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import ratio, seconds
from hpml_jobs.report.frame.references import pairs
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.frame.table import Table

CAPTION = (
    "TN: {time} of N {units} at batch b per {unit}.",
    "Same batch per {unit} (Table 1), T1 at b: how much sooner {one} ends if each "
    "{unit} keeps its batch.",
    "Same global batch (strong scaling), T1 at N x b: how much sooner it ends with the same "
    "iterations.",
    "Scaled (weak scaling), N times the first: how many times as much N {units} do in the same "
    "time, if T is of equally many iterations. T of {one} has N in it already, so this is shown "
    "only for reports that print it.",
    "Next smaller batch b', the same N: what the batch brings without more {units}.",
)


class SpeedupLine(NamedTuple):
    """The speedups of a row, by what its time is compared with."""

    epoch_s: Annotated[float, Shown("TN, s", seconds)]
    speedup: Annotated[Number, Shown("T1/TN", ratio, "same batch per {unit}", doubt="is_doubtful")]
    strong_speedup: Annotated[
        Number, Shown("T1/TN", ratio, "same global batch (strong)", doubt="doubts_strong")
    ]
    scaled_speedup: Annotated[
        Number, Shown("N x T1/TN", ratio, "scaled (weak)", doubt="is_doubtful")
    ]
    batch_speedup: Annotated[
        Number, Shown("T(b')/T(b)", ratio, "next smaller batch", doubt="doubts_smaller")
    ]
    is_doubtful: bool
    doubts_strong: bool
    doubts_smaller: bool


def definitions(group: ConditionGroup) -> Table | None:
    """Return every row's speedups; None if no two times can be compared."""
    lines = list(_lines(group))
    ratios = (line[1:5] if row.gpus > 1 else line[4:5] for row, line in lines)
    if not any(map(any, ratios)):
        return None
    unit, units = captions.unit(group.device), captions.units(group.device)
    time, one = captions.time_name(group.work), captions.one_work(group.work)
    text = TableText(
        "speedups",
        "Speedup by definition",
        "timed epoch",
        tuple(text.format(time=time, one=one, unit=unit, units=units) for text in CAPTION),
    )
    return line_table(group, text, lines, columns_of(SpeedupLine, unit=unit))


def _lines(group: ConditionGroup) -> Iterator[tuple[Row, SpeedupLine]]:
    strong = {pair.parallel.place: pair for pair in pairs(group) if pair.reference.is_baseline}
    before: Row | None = None
    for row in group.timed:
        is_against_1 = row.reference is not None and row.reference.is_baseline
        pair, speedup = strong.get(row.place), row.speedup if is_against_1 else None
        smaller = before if before and before.setup == row.setup else None
        before, epoch_s = row, row.figures.epoch_s
        yield (
            row,
            SpeedupLine(
                epoch_s=epoch_s,
                speedup=speedup,
                strong_speedup=pair.speedup if pair else None,
                scaled_speedup=speedup and formulas.scaled_speedup(speedup, row.gpus),
                batch_speedup=formulas.speedup(smaller.figures.epoch_s, epoch_s)
                if smaller
                else None,
                is_doubtful=group.doubts_ratio(row),
                doubts_strong=group.doubts_ratio(row, pair and pair.reference),
                doubts_smaller=group.doubts_ratio(row, smaller),
            ),
        )
