"""The choice of a cell in every group of a study, in words and as values."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.errors import HpmlError
from hpml_jobs.report.choose import words
from hpml_jobs.report.choose.rules import Candidate, Choice, Wish, choose
from hpml_jobs.report.choose.table import ChoiceLine, choice_table
from hpml_jobs.report.frame.cells import cell_results
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.report import complete_groups
from hpml_jobs.study.snapshot import FolderSnapshot


class GroupChoice(NamedTuple):
    """The choice in one group of equal conditions, as a table, and commands of cells beyond it."""

    group: ConditionGroup
    choice: Choice
    table: Table
    next_cells: tuple[str, ...]

    @property
    def document(self) -> dict[str, Any]:
        """The choice as values for programs."""
        choice = self.choice
        return {
            "conditions": self.group.conditions,
            "answer": self.table.answer,
            "ask": self._values(choice.ask.candidate if choice.ask else None),
            "fastest": self._values(choice.fastest.candidate if choice.fastest else None),
            "cheapest": self._values(choice.cheapest),
            "reference": self._values(choice.reference),
            "cells": [self._values(candidate) for candidate in choice.candidates],
            "steps": [
                {
                    "from_gpus": step.smaller.row.gpus,
                    "to_gpus": step.larger.row.gpus,
                    "saved_s": step.saved_s,
                    "added_gpu_s": step.added_gpu_s,
                }
                for step in choice.steps
            ],
            "next_cells": self.next_cells,
            "notes": self.table.notes,
        }

    def _values(self, candidate: Candidate | None) -> dict[str, Any] | None:
        """Return a cell as values."""
        if candidate is None:
            return None
        return ChoiceLine.of(candidate, self.choice, self.group.device)._asdict()


def choices(
    snapshots: Iterable[FolderSnapshot],
    wish: Wish,
    cluster: Cluster | None,
    commands: Sequence[str],
    *,
    study: str = "STUDY",
) -> list[GroupChoice]:
    """Return the choice of every group with a number.

    `cluster` says which cells are charged whole nodes; `commands` are those of the `study`.

    Raises:
        HpmlError: epochs are wished for, and the study has rates without the samples of an epoch.
    """
    made = []
    for group in complete_groups(cell_results(snapshots, {})):
        if wish.epochs is not None and group.work is not None:
            raise HpmlError(
                f"epochs={wish.epochs}: the {group.work.name} of an epoch of "
                f"{group.a_cell.workload.name} are not reported: import it again with samples=N"
            )
        choice = choose(group, wish, cluster)
        if choice:
            next_cells = words.next_cells(choice, commands, group.device)
            made.append(GroupChoice(group, choice, choice_table(group, choice, study), next_cells))
    return made
