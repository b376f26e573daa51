"""The predictions of every group of a study, as a table and as values for programs."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.predict.forecast import COVERAGE, Forecast, Prediction
from hpml_jobs.predict.network import BusSweep
from hpml_jobs.predict.place import Observation, place_fields
from hpml_jobs.predict.question import Question
from hpml_jobs.report.frame.cells import cell_results
from hpml_jobs.report.frame.groups import ConditionGroup, complete_groups
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.predict.rules import forecast
from hpml_jobs.report.predict.table import Line, answer, errors, lines, predictions
from hpml_jobs.study.snapshot import FolderSnapshot


class GroupForecast(NamedTuple):
    """The forecast of one group of equal conditions, and its table."""

    group: ConditionGroup
    forecast: Forecast
    table: Table
    lines: list[Line]

    @property
    def document(self) -> dict[str, Any]:
        """The forecast as values for programs; docs/choose_predict.md has the schema."""
        made, workload = self.forecast, self.group.a_cell.workload
        return {
            "conditions": made.conditions,
            "answer": self.table.answer,
            "predictions": [
                {
                    **_prediction(line.prediction),
                    "unit": workload.throughput_unit.value,
                    "units_per_s": workload.units_of(line.prediction.samples_per_s),
                    "epoch_s": line.epoch_s,
                    "charged_gpu_s": line.charged_gpu_s,
                }
                for line in self.lines
            ],
            "not_predicted": [
                {
                    **place_fields(refusal.target),
                    "reason": refusal.reason,
                    "command": refusal.command,
                }
                for refusal in made.refusals
            ],
            "measured": [_measured(observation) for observation in made.observations],
            "notes": made.notes,
        }


def forecasts(
    snapshots: Iterable[FolderSnapshot],
    question: Question,
    sweep: BusSweep | None,
    cluster: Cluster | None,
    commands: Sequence[str],
) -> list[GroupForecast]:
    """Return the forecast of every group with a number.

    A group that the question does not fit has a note why, where another one has an answer. `sweep`
    is the content of the question's file, `cluster` says how many GPUs a node has, `commands` are
    those of the study.

    Raises:
        UsageError: the question fits no group.
        HpmlError: a check calls the times of all cells wrong, or all places were measured.
    """
    made, faults = list[GroupForecast](), list[UsageError]()
    for group in complete_groups(cell_results(snapshots, {})):
        if not group.timed:
            continue
        try:
            of_group = forecast(group, cluster, commands, question, sweep)
        except UsageError as fault:  # several groups need not all fit the question
            faults.append(fault)
            notes = (f"not predicted: {fault}",)
            of_group = Forecast(conditions=group.conditions, observations=(), notes=notes)
        table = predictions(group, of_group, cluster)
        if table is not None:
            shown = _with_words(table, group, of_group)
            costs = lines(group, of_group, cluster)
            made.append(GroupForecast(group, of_group, shown, costs))
    forecasts_made = [of_group.forecast for of_group in made]
    if any(each.predictions or each.refusals for each in forecasts_made):
        return made
    if faults:
        raise faults[0]
    if made:
        raise HpmlError("; ".join(dict.fromkeys(n for each in forecasts_made for n in each.notes)))
    return []


def _with_words(table: Table, group: ConditionGroup, of_group: Forecast) -> Table:
    """Return a table with its answer above, and the errors on left-out cells below."""
    return msgspec.structs.replace(
        table,
        answer=answer(of_group, group.device, group.a_cell.workload),
        notes=(*errors(of_group, group.device), *table.notes),
    )


def _measured(observation: Observation) -> dict[str, Any]:
    return {
        **place_fields(observation),
        "step_s": observation.step_s,
        "samples_per_s": observation.samples / observation.step_s,
        "runs": observation.runs,
        "cells": observation.cells,
    }


def _prediction(prediction: Prediction) -> dict[str, Any]:
    skill = prediction.skill
    error = skill and {
        "left_out": skill.how,
        "model": skill.model,
        "null": skill.null,
        "points": [
            {
                **place_fields(point.observation),
                "step_s": point.observation.step_s,
                "model_s": point.model_s,
                "null_s": point.null_s,
                "distance": point.distance,
            }
            for point in skill.points
        ],
    }
    return {
        **place_fields(prediction.target),
        "step_s": prediction.step_s,
        "low_s": prediction.low_s,
        "high_s": prediction.high_s,
        "coverage": COVERAGE,
        "samples_per_s": prediction.samples_per_s,
        "method": prediction.method.value,
        "model_s": prediction.model_s,
        "null_s": prediction.null_s,
        "parts": prediction.parts,
        "error": error,
        "remarks": prediction.remarks,
    }
