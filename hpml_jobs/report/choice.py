"""The choice of a cell in every group of a study, in words and as values."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.predict.network import BusSweep
from hpml_jobs.predict.question import Question
from hpml_jobs.predict.values import Forecast
from hpml_jobs.report.merge import forecasts
from hpml_jobs.report.merge.cells import cell_results
from hpml_jobs.report.merge.choice import Candidate, Choice, Wish, charged_gpus, choose
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.outlook import setup_of
from hpml_jobs.report.merge.predicted_choice import (
    PredictedCell,
    PredictedChoice,
    with_predictions,
)
from hpml_jobs.report.report import complete_groups
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.choice import choice_table
from hpml_jobs.report.tables.predicted_choice import predicted_table
from hpml_jobs.report.text import choice as words
from hpml_jobs.report.text.predicted_choice import why
from hpml_jobs.study.snapshot import FolderSnapshot

MEASURED_ONLY = frozenset(
    {
        *("cells", "runs", "doubtful"),
        *("joules", "joules_per_1000_units", "joules_per_1000_samples"),
    }
)
"""Values that a predicted cell does not have."""


class Asked(NamedTuple):
    """What to predict, and the content of the question's file."""

    question: Question
    sweep: BusSweep | None = None


class Predicted(NamedTuple):
    """The choice with predicted cells, and its table."""

    choice: PredictedChoice
    table: Table


class GroupChoice(NamedTuple):
    """The choice in one group of equal conditions, as a table, and commands of cells beyond it.

    `predicted` is the choice with predicted cells, only where it was requested.
    """

    group: ConditionGroup
    choice: Choice
    table: Table
    next_cells: tuple[str, ...]
    predicted: Predicted | None = None

    @property
    def document(self) -> dict[str, Any]:
        """The choice as values for programs."""
        choice, device = self.choice, self.group.device
        return {
            "conditions": self.group.conditions,
            "answer": self.table.answer,
            "ask": _values(choice.ask.candidate if choice.ask else None),
            "fastest": _values(choice.fastest.candidate if choice.fastest else None),
            "cheapest": _values(choice.cheapest),
            "reference": _values(choice.reference),
            "cells": [
                {**_some_values(candidate), "why": words.why(candidate, choice, device)}
                for candidate in choice.candidates
            ],
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
            "predicted": self._predicted,
        }

    @property
    def _predicted(self) -> dict[str, Any] | None:
        """The predicted cells as values, apart from the measured ones; None: not requested."""
        if self.predicted is None:
            return None
        predicted, table = self.predicted
        choice, device = self.choice, self.group.device
        return {
            "answer": table.answer,
            "ask": _predicted_values(predicted.ask) if predicted.ask else None,
            "cells": [
                {**_predicted_values(cell), "why": why(cell, predicted, choice, device)}
                for cell in predicted.cells
            ],
            "not_predicted": [
                {
                    **setup_of(refusal.target)._asdict(),
                    "strategy": refusal.target.strategy.value,
                    "batch": refusal.target.batch,
                    "reason": refusal.reason,
                    "command": refusal.command,
                }
                for refusal in predicted.refusals
            ],
            "notes": table.notes,
        }


def choices(  # noqa: PLR0913  (what is known of the study, and what is asked)
    snapshots: Iterable[FolderSnapshot],
    wish: Wish,
    cluster: Cluster | None,
    commands: Sequence[str],
    asked: Asked | None = None,
    *,
    study: str = "STUDY",
) -> list[GroupChoice]:
    """Return the choice of every group with a number; with `asked` that of predictions beside it.

    `cluster` says which cells are charged whole nodes; `commands` are those of the `study`.

    Raises:
        HpmlError: epochs are wished for, and the study has rates without the samples of an epoch.
        UsageError: what is asked of predictions fits no group.
    """
    made, faults = list[GroupChoice](), list[UsageError]()
    for group in complete_groups(cell_results(snapshots, {})):
        if wish.epochs is not None and group.work is not None:
            raise HpmlError(
                f"epochs={wish.epochs}: the {group.work.name} of an epoch of "
                f"{group.a_cell.workload.name} are not reported: import it again with samples=N"
            )
        choice = choose(group, wish, cluster)
        if choice:
            next_cells = words.next_cells(choice, commands, group.device)
            table = choice_table(group, choice, study)
            beside = None
            if asked:
                outlook, fault = forecasts.answer(group, cluster, commands, *asked)
                faults += [fault] if fault else []
                beside = _with_predictions(group, choice, cluster, commands, outlook)
            made.append(GroupChoice(group, choice, table, next_cells, beside))
    if faults and len(faults) == len(made):
        raise faults[0]
    return made


def _with_predictions(
    group: ConditionGroup,
    choice: Choice,
    cluster: Cluster | None,
    commands: Sequence[str],
    outlook: Forecast,
) -> Predicted:
    predicted = with_predictions(group, choice, outlook, charged_gpus(group, cluster))
    return Predicted(predicted, predicted_table(group, choice, outlook, predicted, commands))


def _predicted_values(cell: PredictedCell) -> dict[str, Any]:
    """Return a predicted cell as values: what only measured cells have is not in it."""
    values = _some_values(cell.candidate)
    skill = cell.prediction.skill
    return {
        **{name: value for name, value in values.items() if name not in MEASURED_ONLY},
        "low_s": cell.low_s,
        "high_s": cell.high_s,
        "model_error": skill.model.mean if skill else None,
        "null_error": skill.null.mean if skill else None,
    }


def _some_values(candidate: Candidate) -> dict[str, Any]:
    row = candidate.row
    return {
        **row.setup._asdict(),
        "strategy": row.strategy.value,
        "batch": row.batch_per_gpu,
        "cells": row.cells,
        "runs": len(candidate.epochs_s),
        "epoch_s": candidate.epoch_s,
        "units_per_s": candidate.units_per_s,
        "unit": candidate.unit.value,
        "samples_per_s": candidate.samples_per_s,
        "efficiency": candidate.efficiency,
        "charged_gpus": candidate.charged_gpus,
        "charged_gpu_s": candidate.gpu_s,
        "charged_gpu_hours": candidate.gpu_hours,
        "joules": candidate.joules,
        "joules_per_1000_units": candidate.joules_per_thousand,
        "joules_per_1000_samples": candidate.joules_per_thousand_samples,
        "doubtful": candidate.doubtful,
    }


def _values(candidate: Candidate | None) -> dict[str, Any] | None:
    return None if candidate is None else _some_values(candidate)
