"""Strong scaling for the first screen, where Table 1 would have times and dashes."""

from typing import Annotated, NamedTuple, Self

from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import Shown, TableText, columns_of, line_table
from hpml_jobs.report.frame.numbers import count, ratio, seconds, share_text
from hpml_jobs.report.frame.table import Table
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.pairs import Pair, pairs

CAPTION = (
    "The same global batch on more {units}. Time: seconds of one epoch, the longest of all ranks. "
    "Speedup: against the smallest size. Efficiency: speedup / ideal."
)


class StrongLine(NamedTuple):
    """A size of a global batch; its speedup and efficiency are 1 for the smallest one."""

    global_batch: Annotated[int, Shown("global batch", count)]
    time_s: Annotated[float, Shown("Time(s)", seconds)]
    speedup: Annotated[float, Shown("Speedup", ratio)]
    efficiency: Annotated[float, Shown("efficiency", share_text)]

    @classmethod
    def of_reference(cls, pair: Pair) -> Self:
        """Return the line of the smallest size."""
        return cls(pair.global_batch, pair.reference_s, 1.0, 1.0)

    @classmethod
    def of(cls, pair: Pair) -> Self:
        """Return the line of a larger size."""
        return cls(pair.global_batch, pair.parallel_s, pair.speedup, pair.efficiency)


def strong_table(group: ConditionGroup) -> Table | None:
    """Return times and speedups by global batch; None where Table 1 has a speedup, or none is."""
    if any(row.speedup is not None and row.reference != row.setup for row in group.timed):
        return None
    lines = {}
    for pair in pairs(group):
        lines[pair.reference.place] = (pair.reference, StrongLine.of_reference(pair))
        lines[pair.parallel.place] = (pair.parallel, StrongLine.of(pair))
    if not lines:
        return None
    caption = (CAPTION.format(units=captions.units(group.device)), captions.runs(group.timed))
    text = TableText("strong", "Strong scaling: time and speedup", "", caption)
    ordered = sorted(lines.values(), key=lambda item: (item[1].global_batch, item[0].gpus))
    return line_table(group, text, ordered, columns_of(StrongLine))
