"""Full table of predicted iterations: what was not measured, with its band and its skill."""

from collections.abc import Callable
from typing import NamedTuple

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.workload import Workload
from hpml_jobs.predict.forecast import Forecast, Method, Prediction
from hpml_jobs.report.choose.rules import charged_gpus
from hpml_jobs.report.choose.words import cost, cost_unit
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import (
    Column,
    Columns,
    TableText,
    column,
    item_table,
    place_columns,
)
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import per_second, percent, seconds
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.predict import rules, words

CAPTION = (
    "Predicted, not measured: {what}. Band: meant to contain 90 % of measurements. No change: an "
    "iteration takes as long as at the largest measured size. Errors: mean |predicted / measured - "
    "1| of the model and of no change on measured cells that were left out; where no change is "
    "better, it is the figure. Cost: {units} that are charged x s of {epoch}, that of the "
    "nearest measured cell times the ratio of their rates. What a prediction cannot know is in "
    "docs/choose_predict.md."
)


class Line(NamedTuple):
    """A prediction with the seconds of its epoch, where known, and the GPUs that it is charged."""

    prediction: Prediction
    epoch_s: float | None
    charged_gpus: int

    @property
    def charged_gpu_s(self) -> float | None:
        """GPU-seconds that an epoch is charged."""
        return None if self.epoch_s is None else self.charged_gpus * self.epoch_s


def lines(group: ConditionGroup, made: Forecast, cluster: Cluster | None) -> list[Line]:
    """Return the predictions with their costs; `cluster` says which are charged whole nodes."""
    charged = charged_gpus(group, cluster)
    return [
        Line(p, rules.epoch_s(group, made, p), charged(rules.setup_of(p.target)))
        for p in made.predictions
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
    shown = (caption,) if forecast.predictions else ()
    text = TableText("predictions", "Predictions", "", shown, on_screen=False)
    items = [
        (words.label(line.prediction, group.device), line)
        for line in lines(group, forecast, cluster)
    ]
    notes = [
        *forecast.notes,
        *words.remarks(forecast, group.device),
        *words.refused(forecast.refusals, group.device),
    ]
    return item_table([group], text, items, _heads(group), notes)


def _what(workload: Workload) -> str:
    rate = f"{workload.throughput_unit.value}/s"
    return rate if workload.samples_are_tokens else f"seconds of an iteration, and {rate} from them"


def _times(workload: Workload) -> tuple[Columns[Line], ...]:
    """Return the columns of predicted times and rates; of rates where sequences have no length."""
    rate_unit = f"{workload.throughput_unit.value}/s"
    if workload.samples_are_tokens:
        columns = (
            _rate("units_per_s", "predicted", lambda p: p.step_s),
            _rate("low_units_per_s", "band from", lambda p: p.high_s),
            _rate("high_units_per_s", "to", lambda p: p.low_s),
            _rate("null_units_per_s", "no change", lambda p: p.null_s),
            _rate("model_units_per_s", "model", lambda p: p.model_s),
        )
        return (Columns(rate_unit, columns),)
    return (
        Columns(
            "s per iteration",
            (
                column("predicted_step_s", "predicted", lambda c: c.prediction.step_s, seconds),
                column("low_s", "band from", lambda c: c.prediction.low_s, seconds),
                column("high_s", "to", lambda c: c.prediction.high_s, seconds),
                column("null_s", "no change", lambda c: c.prediction.null_s, seconds),
                column("model_s", "model", lambda c: c.prediction.model_s, seconds),
            ),
        ),
        Columns(
            rate_unit,
            (
                column(
                    "units_per_s",
                    "",
                    lambda c: workload.units_of(c.prediction.samples_per_s),
                    per_second,
                ),
            ),
        ),
    )


def _rate(name: str, head: str, seconds_of: Callable[[Prediction], float | None]) -> Column[Line]:
    def rate(line: Line) -> float | None:
        time_s = seconds_of(line.prediction)
        return None if time_s is None else line.prediction.target.samples / time_s

    return column(name, head, rate, per_second)


def _heads(group: ConditionGroup) -> tuple[Columns[Line], ...]:
    workload = group.a_cell.workload

    def error(of: str, line: Line) -> float | None:
        skill = line.prediction.skill
        return None if skill is None else getattr(skill, of).mean

    return (
        Columns("", place_columns(lambda c: rules.setup_of(c.prediction.target))),
        Columns("", (column("batch", "", lambda c: c.prediction.target.batch),)),
        *_times(workload),
        Columns(
            "",
            (
                column("unit", "", lambda _: workload.throughput_unit.value),
                column("samples_per_s", "", lambda c: c.prediction.samples_per_s),
                column("epoch_s", "", lambda c: c.epoch_s),
            ),
        ),
        Columns(
            f"cost per {captions.work_text(group.work)}",
            (
                column(
                    "charged_gpu_s",
                    cost_unit(group.device, short=True),
                    lambda c: c.charged_gpu_s,
                    cost,
                ),
            ),
        ),
        Columns(
            "error, %",
            (
                column("model_error", "model", lambda c: error("model", c), percent),
                column("null_error", "no change", lambda c: error("null", c), percent),
            ),
        ),
        Columns(
            "figure of",
            (column("method", "", lambda c: c.prediction.method, lambda m: Method(m).value),),
            words=True,
        ),
    )
