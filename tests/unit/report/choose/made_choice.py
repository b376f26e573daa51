"""The choice of a study's only group, as the report makes it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from hpml_jobs.report.choose import words
from hpml_jobs.report.choose.cost import Wish
from hpml_jobs.report.choose.rules import Choice, choose
from hpml_jobs.report.choose.table import choice_table

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.report.frame.table import Table
from hpml_jobs.results.cells import cell_results
from hpml_jobs.results.checks.study import checked_groups
from hpml_jobs.study.snapshot import read_snapshots
from hpml_jobs.study.study import commands_of
from tests.unit.study_builder import StudyBuilder


class MadeChoice(NamedTuple):
    """A choice, its table, and the commands of cells beyond it."""

    choice: Choice
    table: Table
    next_cells: tuple[str, ...]

    @property
    def cells(self) -> list[dict[str, Any]]:
        """The lines of choice.csv."""
        sheet = self.table.sheet
        return [dict(zip(sheet.columns, row, strict=True)) for row in sheet.rows]


def made_choice(
    builder: StudyBuilder,
    cluster: Cluster | None = None,
    commands: Sequence[str] = (),
    **wish: Any,
) -> MadeChoice:
    """Return the choice of the study's only group."""
    results = cell_results(read_snapshots(builder.study.cells()), {})
    (group,) = checked_groups(results)
    choice = choose(group, Wish(**wish), cluster)
    assert choice is not None
    return MadeChoice(
        choice,
        choice_table(group, choice),
        words.next_cells(choice, commands_of(commands, group.a_cell.script), None),
    )
