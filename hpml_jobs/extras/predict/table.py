"""Predictions of a group, as a table, in words and as values for programs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple, Self

import msgspec

from hpml_jobs.checks.study import checked_groups
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.place import Setup
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import counted, listed, with_command
from hpml_jobs.core.workload import Workload
from hpml_jobs.extras.predict import rules
from hpml_jobs.extras.predict.forecast import (
    COVERAGE,
    Forecast,
    Method,
    Prediction,
    Refusal,
)
from hpml_jobs.extras.predict.model import Errors, Skill
from hpml_jobs.extras.predict.place import MeasuredPlace, Target
from hpml_jobs.extras.predict.question import Question
from hpml_jobs.extras.predict.rules import forecast
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import (
    GroupContext,
    Number,
    Shown,
    TableText,
    columns_of,
    filled,
    item_table,
)
from hpml_jobs.report.frame.captions import (
    cell_label,
    cell_words,
    cost_unit,
    setup_words,
    unit,
    units,
)
from hpml_jobs.report.frame.numbers import cost, per_second, percent, seconds
from hpml_jobs.report.frame.table import Table
from hpml_jobs.results.cells import cell_results
from hpml_jobs.results.groups import Charged, ConditionGroup, charged_gpus
from hpml_jobs.study.snapshot import FolderSnapshot

NULL_SHOWN = (
    "no change per {unit} has no larger mean error than the model on left-out cells: where the "
    "figure is of it, the model adds nothing"
)


def remarks(forecast: Forecast, device: Device) -> Iterator[str]:
    """Yield each remark once, with the predictions that it is about unless it is about all."""
    by_remark: dict[str, list[str]] = {}
    for prediction in forecast.predictions:
        for remark in prediction.remarks:
            by_remark.setdefault(remark, []).append(
                cell_words(prediction.target.place, device)
            )
    for remark, labels in by_remark.items():
        text = _in_units(remark, device)
        is_of_all = len(labels) == len(forecast.predictions)
        yield text if is_of_all else f"{'; '.join(labels)}: {text}"


def _in_units(text: str, device: Device) -> str:
    """Return a remark or a reason with the unit of a device: the model counts GPUs."""
    return text.replace("GPUs", units(device))


def refused(refusals: Iterable[Refusal], device: Device) -> Iterator[str]:
    """Yield why places are not predicted, each reason once, with the command that would help."""
    by_reason: dict[tuple[str, str | None], list[Refusal]] = {}
    for refusal in refusals:
        by_reason.setdefault((refusal.reason, refusal.command), []).append(refusal)
    for (reason, command), members in by_reason.items():
        places, why = _places(members, device), _in_units(reason, device)
        sentence = f"not predicted: {places}: {why}"
        yield with_command(sentence, command) if command else sentence


def _places(refusals: Iterable[Refusal], device: Device) -> str:
    """Return the names of several places, the batches of a setup together."""
    batches: dict[Setup, list[int]] = {}
    for refusal in refusals:
        batches.setdefault(refusal.target.place.setup, []).append(refusal.target.batch)
    places = [
        setup_words(setup, listed(sizes), device) for setup, sizes in batches.items()
    ]
    return "; ".join(places)


def answer(forecast: Forecast, device: Device, workload: Workload) -> str:
    """Return the fastest prediction with the most GPUs; empty without predictions."""
    if not forecast.predictions:
        return ""
    most = max(p.target.gpus for p in forecast.predictions)
    best = max(
        (p for p in forecast.predictions if p.target.gpus == most),
        key=lambda p: p.samples_per_s,
    )
    target = best.target
    size = counted(target.gpus, unit(device), units(device))
    nodes = f" on {target.nodes} nodes" if target.nodes > 1 else ""
    text = (
        f"{size}{nodes} at batch {target.batch} per {unit(device)} ({target.strategy.value}): "
        f"{_rate_text(best.samples_per_s, workload)} {_unit(workload)}/s"
    )
    ends = (
        _rate_text(target.samples / end_s, workload)
        for end_s in (best.high_s, best.low_s)
    )
    text += f", 90 % band {' to '.join(ends)}"
    if best.method is Method.NULL:
        text += f", by no change per {unit(device)}"
    return f"{text}. {_mean_errors(best)}"


def _rate_text(samples_per_s: float, workload: Workload) -> str:
    """Return a throughput in units per second; in samples where a sample's units are not known."""
    units_per_s = _units(workload, samples_per_s)
    return per_second(samples_per_s if units_per_s is None else units_per_s)


def _units(workload: Workload, samples: float) -> float | None:
    """Return the units of so many samples, or of a rate of samples; None: not known."""
    size = workload.units_per_sample
    return None if size is None else samples * size


def _unit(workload: Workload) -> str:
    unknown = workload.units_per_sample is None
    return workload.samples_name if unknown else workload.throughput_unit.value


def _mean_errors(prediction: Prediction) -> str:
    skill = prediction.skill
    if skill is None:
        return (
            "No cell could be left out to measure its error: the band is that of published tables, "
            "and launches here may scatter more."
        )
    return (
        f"Mean error on {counted(len(skill.points), 'left-out cell')}: model "
        f"{percent(skill.model.mean)} %, no change {percent(skill.null.mean)} %."
    )


def errors(forecast: Forecast, device: Device) -> Iterator[str]:
    """Yield the errors on left-out cells, a line for each series and way of leaving out."""
    series = {_series(p) for p in forecast.predictions}
    skills: dict[tuple[str, str], Skill] = {}
    for prediction in forecast.predictions:
        if skill := prediction.skill:
            skills[_series(prediction), skill.how] = skill
    for (name, how), skill in skills.items():
        prefix = f"{name}: " if len(series) > 1 else ""
        yield (
            f"{prefix}error on {counted(len(skill.points), 'left-out cell')} ({how}), mean / 90th "
            f"percentile / worst: model {_three(skill.model)} %, no change {_three(skill.null)} %"
        )
    if any(p.method is Method.NULL and p.skill for p in forecast.predictions):
        yield NULL_SHOWN.format(unit=unit(device))


def _series(prediction: Prediction) -> str:
    """Return the strategy and treatment of a prediction."""
    kind = prediction.target.kind
    return ", ".join(filter(None, (kind.strategy.value, kind.treatment)))


def _three(errors: Errors) -> str:
    shares = (errors.mean, errors.p90, errors.worst)
    return " / ".join(map(percent, shares))


CAPTION = (
    "Predicted, not measured: {what}. Band: meant to contain 90 % of measurements. No change: an "
    "iteration takes as long as at the largest measured size. Errors: mean |predicted / measured - "
    "1| of the model and of no change on measured cells that were left out; where no change is "
    "better, it is the figure. Cost: {units} that are charged x s of {epoch}, that of the "
    "nearest measured cell times the ratio of their rates. What a prediction cannot know is in "
    "docs/predict.md."
)


PER_ITERATION = "s per iteration"
RATES = "{unit}/s"


class PredictionLine(NamedTuple):
    """A prediction with its band, its errors, and the cost of its epoch where that is known.

    Where sequences have no length, it has rates instead of times of an iteration.
    """

    strategy: str
    gpus: int
    nodes: int
    treatment: str
    batch: int
    predicted_step_s: Annotated[float, Shown("predicted", seconds, PER_ITERATION)]
    low_s: Annotated[float, Shown("band from", seconds, PER_ITERATION)]
    high_s: Annotated[float, Shown("to", seconds, PER_ITERATION)]
    null_s: Annotated[float, Shown("no change", seconds, PER_ITERATION)]
    model_s: Annotated[float, Shown("model", seconds, PER_ITERATION)]
    units_per_s: Annotated[Number, Shown("{predicted}", per_second, RATES)]
    low_units_per_s: Annotated[Number, Shown("band from", per_second, RATES)]
    high_units_per_s: Annotated[Number, Shown("to", per_second, RATES)]
    null_units_per_s: Annotated[Number, Shown("no change", per_second, RATES)]
    model_units_per_s: Annotated[Number, Shown("model", per_second, RATES)]
    unit: str
    samples_per_s: float
    epoch_s: float
    charged_gpu_s: Annotated[float, Shown("{seconds}", cost, "{cost}")]
    model_error: Annotated[Number, Shown("model", percent, "error, %")]
    null_error: Annotated[Number, Shown("no change", percent, "error, %")]
    method: Annotated[str, Shown("figure of", words=True)]

    @classmethod
    def of(
        cls,
        group: ConditionGroup,
        forecast: Forecast,
        prediction: Prediction,
        charged: Charged,
    ) -> Self:
        """Return the line of a prediction of a forecast."""
        workload, target, skill = (
            group.a_cell.workload,
            prediction.target,
            prediction.skill,
        )
        setup = target.place.setup
        epoch_s = rules.epoch_s(group, forecast, prediction)

        def rate(time_s: float) -> Number:
            return _units(workload, target.samples / time_s)

        return filled(
            cls,
            prediction,
            strategy=setup.strategy.value,
            gpus=setup.gpus,
            nodes=setup.nodes,
            treatment=setup.treatment,
            batch=target.batch,
            predicted_step_s=prediction.step_s,
            units_per_s=rate(prediction.step_s),
            low_units_per_s=rate(prediction.high_s),
            high_units_per_s=rate(prediction.low_s),
            null_units_per_s=rate(prediction.null_s),
            model_units_per_s=rate(prediction.model_s),
            unit=workload.throughput_unit.value,
            epoch_s=epoch_s,
            charged_gpu_s=charged(setup) * epoch_s,
            model_error=skill.model.mean if skill else None,
            null_error=skill.null.mean if skill else None,
            method=prediction.method.value,
        )


TIMES = ("predicted_step_s", "low_s", "high_s", "null_s", "model_s")
RATES_OF_TOKENS = tuple(
    f"{end}_units_per_s" for end in ("low", "high", "null", "model")
)
"""The columns of which a table has one or the other."""


def lines(
    group: ConditionGroup, forecast: Forecast, cluster: Cluster | None
) -> list[PredictionLine]:
    """Return the lines of predictions; `cluster` says which are charged whole nodes."""
    charged = charged_gpus(group, cluster)
    return [
        PredictionLine.of(group, forecast, p, charged) for p in forecast.predictions
    ]


def predictions(
    group: ConditionGroup, forecast: Forecast, cluster: Cluster | None = None
) -> Table | None:
    """Return the table of a group's predictions; its notes say what is not predicted, and why."""
    if not (forecast.predictions or forecast.refusals or forecast.notes):
        return None
    caption = CAPTION.format(
        what=_what(group.a_cell.workload),
        units=captions.units(group.device),
        epoch=captions.an_epoch(group.work),
    )
    captions_of_table = (caption,) if forecast.predictions else ()
    text = TableText("predictions", "Predictions", "", captions_of_table)
    labels = [cell_label(p.target.place, group.device) for p in forecast.predictions]
    items = zip(labels, lines(group, forecast, cluster), strict=True)
    has_tokens = group.a_cell.workload.samples_are_tokens
    heads = columns_of(
        PredictionLine,
        without=TIMES if has_tokens else RATES_OF_TOKENS,
        predicted="predicted" if has_tokens else "",
        unit=group.a_cell.workload.throughput_unit.value,
        seconds=cost_unit(group.device, short=True),
        cost=f"cost per {captions.work_text(group.work)}",
    )
    notes = [
        *forecast.notes,
        *remarks(forecast, group.device),
        *refused(forecast.refusals, group.device),
    ]
    return item_table([group], text, items, heads, notes)


def of_next_sizes(context: GroupContext) -> Table | None:
    """Return the table of a report: None where nothing is predicted."""
    forecast: Forecast = context.result
    if not forecast.predictions:
        return None
    return predictions(context.group, forecast, context.cluster)


def _what(workload: Workload) -> str:
    rate = f"{workload.throughput_unit.value}/s"
    return (
        rate
        if workload.samples_are_tokens
        else f"seconds of an iteration, and {rate} from them"
    )


class GroupForecast(NamedTuple):
    """The forecast of one group of equal conditions, and its table."""

    group: ConditionGroup
    forecast: Forecast
    table: Table
    lines: list[PredictionLine]

    @property
    def document(self) -> dict[str, Any]:
        """The forecast as values for programs; docs/predict.md has the schema."""
        forecast = self.forecast
        return {
            "conditions": forecast.conditions,
            "answer": self.table.answer,
            "predictions": [
                {
                    **_prediction(prediction),
                    "unit": line.unit,
                    "units_per_s": line.units_per_s,
                    "epoch_s": line.epoch_s,
                    "charged_gpu_s": line.charged_gpu_s,
                }
                for prediction, line in zip(
                    forecast.predictions, self.lines, strict=True
                )
            ],
            "not_predicted": [
                {
                    **_place(refusal.target),
                    "reason": refusal.reason,
                    "command": refusal.command,
                }
                for refusal in forecast.refusals
            ],
            "measured": [
                _measured(observation) for observation in forecast.observations
            ],
            "notes": forecast.notes,
        }


def forecasts(
    snapshots: Iterable[FolderSnapshot],
    question: Question,
    cluster: Cluster | None,
    commands: Sequence[str],
) -> list[GroupForecast]:
    """Return the forecast of every group with a number.

    A group that the question does not fit has a note why, where another one has an answer.
    `cluster` says how many GPUs a node has, `commands` are those of the study.

    Raises:
        UsageError: the question fits no group.
        HpmlError: a check calls the times of all cells wrong, or all places were measured.
    """
    of_groups, faults = list[GroupForecast](), list[UsageError]()
    for group in checked_groups(cell_results(snapshots, {})):
        if not group.timed:
            continue
        try:
            of_group = forecast(group, cluster, commands, question)
        except UsageError as fault:  # several groups need not all fit the question
            faults.append(fault)
            notes = (f"not predicted: {fault}",)
            of_group = Forecast(
                conditions=group.conditions, observations=(), notes=notes
            )
        table = predictions(group, of_group, cluster)
        if table is not None:
            table = _with_words(table, group, of_group)
            costs = lines(group, of_group, cluster)
            of_groups.append(GroupForecast(group, of_group, table, costs))
    _refuse_without_answer([of_group.forecast for of_group in of_groups], faults)
    return of_groups


def _refuse_without_answer(
    contents: Sequence[Forecast], faults: Sequence[UsageError]
) -> None:
    """Refuse forecasts that only have notes."""
    if any(content.predictions or content.refusals for content in contents):
        return
    if faults:
        raise faults[0]
    if contents:
        all_notes = dict.fromkeys(
            note for content in contents for note in content.notes
        )
        raise HpmlError("; ".join(all_notes))


def _with_words(table: Table, group: ConditionGroup, of_group: Forecast) -> Table:
    """Return a table with its answer above, and the errors on left-out cells below."""
    return msgspec.structs.replace(
        table,
        answer=answer(of_group, group.device, group.a_cell.workload),
        notes=(*errors(of_group, group.device), *table.notes),
    )


def _place(target: Target) -> dict[str, Any]:
    setup = target.place.setup
    return {
        "gpus": setup.gpus,
        "batch": target.batch,
        "strategy": setup.strategy,
        "nodes": setup.nodes,
        "accumulate": target.accumulate,
        "path": setup.path,
        "treatment": setup.treatment,
    }


def _measured(observation: MeasuredPlace) -> dict[str, Any]:
    return {
        **_place(observation),
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
                **_place(point.observation),
                "step_s": point.observation.step_s,
                "model_s": point.model_s,
                "null_s": point.null_s,
                "distance": point.distance,
            }
            for point in skill.points
        ],
    }
    return {
        **_place(prediction.target),
        "step_s": prediction.step_s,
        "low_s": prediction.low_s,
        "high_s": prediction.high_s,
        "coverage": COVERAGE,
        "samples_per_s": prediction.samples_per_s,
        "method": prediction.method.value,
        "model_s": prediction.model_s,
        "null_s": prediction.null_s,
        "error": error,
        "remarks": prediction.remarks,
    }
