"""What pictures with a line of bars per cell share: labels, the most bars, axes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.checks.result import Affected
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.report import Report
from hpml_jobs.report.text.captions import cell_label
from hpml_jobs.report.text.marks import EXPLAINED, MARK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BARS = 48
"""The most cells in a picture."""

MARKED = f"{EXPLAINED}."


class Bar(NamedTuple):
    """A cell of a picture, its label with the mark of checks."""

    group: ConditionGroup
    row: Row
    label: str

    @property
    def is_marked(self) -> bool:
        """Whether a check makes its numbers doubtful."""
        return self.label.startswith(MARK)


def bars(report: Report, affected: Affected, has_numbers: Callable[[Row], bool]) -> list[Bar]:
    """Return the cells that have numbers, in the order of the tables."""
    result = []
    for group in report.groups:
        source = group.source
        for row in source.timed:
            if has_numbers(row):
                name = f"{report.name(group)}: " if report.several else ""
                mark = f"{MARK} " if source.doubts(row, affected) else ""
                label = f"{mark}{name}{cell_label(row.place, source.device)}"
                result.append(Bar(source, row, label))
    return result


def height(shown: int) -> float:
    """Return the height in inches of a panel with so many cells."""
    return 0.6 + max(0.17, min(0.3, 7 / max(1, shown))) * shown


def label(axis: "Axes", labels: list[str], what: str) -> None:
    """Label the cells from the top, and the x axis."""
    size = 8 if len(labels) <= 24 else 7
    axis.set_yticks(range(len(labels)), labels, size=size)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.set_xlabel(what)
    axis.grid(visible=False, axis="y")
