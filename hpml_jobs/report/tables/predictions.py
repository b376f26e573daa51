"""Full table of predicted iterations: what was not measured, with its band and its skill."""

from collections.abc import Callable

from hpml_jobs.core.workload import Workload
from hpml_jobs.predict.values import Forecast, Method, Prediction
from hpml_jobs.report.merge import outlook
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import (
    Column,
    Columns,
    TableText,
    column,
    item_table,
    place_columns,
)
from hpml_jobs.report.text import predictions as words
from hpml_jobs.report.text.numbers import per_second, percent, seconds

CAPTION = (
    "Predicted, not measured: {what}. Band: meant to contain 90 % of measurements. No change: an "
    "iteration takes as long as at the largest measured size. Errors: mean |predicted / measured - "
    "1| of the model and of no change on measured cells that were left out; where no change is "
    "better, it is the figure. What a prediction cannot know is in docs/choose_predict.md."
)


def predictions(group: ConditionGroup, forecast: Forecast) -> Table | None:
    """Return the table of a group's predictions; its notes say what is not predicted, and why."""
    if not (forecast.predictions or forecast.refusals or forecast.notes):
        return None
    caption = CAPTION.format(what=_what(group.a_cell.workload))
    shown = (caption,) if forecast.predictions else ()
    text = TableText("predictions", "Predictions", "", shown, on_screen=False)
    items = [(words.label(p, group.device), p) for p in forecast.predictions]
    notes = [
        *forecast.notes,
        *words.remarks(forecast, group.device),
        *words.refused(forecast.refusals, group.device),
    ]
    return item_table([group], text, items, _heads(group), notes)


def _what(workload: Workload) -> str:
    rate = f"{workload.throughput_unit.value}/s"
    return rate if workload.samples_are_tokens else f"seconds of an iteration, and {rate} from them"


def _times(workload: Workload) -> tuple[Columns[Prediction], ...]:
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
                column("predicted_step_s", "predicted", lambda p: p.step_s, seconds),
                column("low_s", "band from", lambda p: p.low_s, seconds),
                column("high_s", "to", lambda p: p.high_s, seconds),
                column("null_s", "no change", lambda p: p.null_s, seconds),
                column("model_s", "model", lambda p: p.model_s, seconds),
            ),
        ),
        Columns(
            rate_unit,
            (column("units_per_s", "", lambda p: workload.units_of(p.samples_per_s), per_second),),
        ),
    )


def _rate(
    name: str, head: str, seconds_of: Callable[[Prediction], float | None]
) -> Column[Prediction]:
    def rate(prediction: Prediction) -> float | None:
        time_s = seconds_of(prediction)
        return None if time_s is None else prediction.target.samples / time_s

    return column(name, head, rate, per_second)


def _heads(group: ConditionGroup) -> tuple[Columns[Prediction], ...]:
    workload = group.a_cell.workload

    def error(of: str, prediction: Prediction) -> float | None:
        skill = prediction.skill
        return None if skill is None else getattr(skill, of).mean

    return (
        Columns("", place_columns(lambda p: outlook.setup_of(p.target))),
        Columns("", (column("batch", "", lambda p: p.target.batch),)),
        *_times(workload),
        Columns(
            "",
            (
                column("unit", "", lambda _: workload.throughput_unit.value),
                column("samples_per_s", "", lambda p: p.samples_per_s),
            ),
        ),
        Columns(
            "error, %",
            (
                column("model_error", "model", lambda p: error("model", p), percent),
                column("null_error", "no change", lambda p: error("null", p), percent),
            ),
        ),
        Columns(
            "figure of",
            (column("method", "", lambda p: p.method, lambda method: Method(method).value),),
            words=True,
        ),
    )
