"""Full table of predicted iterations, with bands and errors, and the predictions in words."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import counted, listed
from hpml_jobs.core.workload import Workload
from hpml_jobs.predict.forecast import Forecast, Method, Prediction, Refusal
from hpml_jobs.predict.model import Errors
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import (
    Column,
    Columns,
    TableText,
    column,
    item_table,
    place_columns,
)
from hpml_jobs.report.frame.captions import (
    cell_label,
    cell_words,
    cost_unit,
    setup_words,
    unit,
    units,
)
from hpml_jobs.report.frame.groups import ConditionGroup, charged_gpus
from hpml_jobs.report.frame.numbers import cost, per_second, percent, seconds
from hpml_jobs.report.frame.rows import Place, Setup
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.predict import rules

NULL_SHOWN = (
    "no change per {unit} has no larger mean error than the model on left-out cells: where the "
    "figure is of it, the model adds nothing"
)


def _place(of: Prediction) -> Place:
    return Place(rules.setup_of(of.target), of.target.batch)


def remarks(forecast: Forecast, device: Device) -> Iterator[str]:
    """Yield each remark once, with the predictions that it is about unless it is about all."""
    by_remark: dict[str, list[str]] = {}
    for prediction in forecast.predictions:
        for remark in prediction.remarks:
            by_remark.setdefault(remark, []).append(cell_words(_place(prediction), device))
    for remark, labels in by_remark.items():
        is_of_all = len(labels) == len(forecast.predictions)
        yield remark if is_of_all else f"{'; '.join(labels)}: {remark}"


def refused(refusals: Iterable[Refusal], device: Device) -> Iterator[str]:
    """Yield why places are not predicted, each reason once, with the command that would help."""
    by_reason: dict[tuple[str, str | None], list[Refusal]] = {}
    for refusal in refusals:
        by_reason.setdefault((refusal.reason, refusal.command), []).append(refusal)
    for (reason, command), members in by_reason.items():
        run = f": {command}" if command else ""
        yield f"not predicted: {_places(members, device)}: {reason}{run}"


def _places(refusals: Iterable[Refusal], device: Device) -> str:
    """Return the names of several places, the batches of a setup together."""
    batches: dict[Setup, list[int]] = {}
    for refusal in refusals:
        batches.setdefault(rules.setup_of(refusal.target), []).append(refusal.target.batch)
    return "; ".join(setup_words(setup, listed(sizes), device) for setup, sizes in batches.items())


def answer(forecast: Forecast, device: Device, workload: Workload) -> str:
    """Return the fastest prediction with the most GPUs; empty without predictions."""
    if not forecast.predictions:
        return ""
    most = max(p.target.gpus for p in forecast.predictions)
    best = max(
        (p for p in forecast.predictions if p.target.gpus == most), key=lambda p: p.samples_per_s
    )
    target = best.target
    size = counted(target.gpus, unit(device), units(device))
    nodes = f" on {target.nodes} nodes" if target.nodes > 1 else ""
    text = (
        f"{size}{nodes} at batch {target.batch} per {unit(device)} ({target.strategy.value}): "
        f"{_rate_text(best.samples_per_s, workload)} {_unit(workload)}/s"
    )
    if best.low_s is not None and best.high_s is not None:
        ends = (_rate_text(target.samples / end_s, workload) for end_s in (best.high_s, best.low_s))
        text += f", 90 % band {' to '.join(ends)}"
    if best.method is Method.NULL:
        text += f", by no change per {unit(device)}"
    return f"{text}. {_mean_errors(best)}"


def _rate_text(samples_per_s: float, workload: Workload) -> str:
    """Return a throughput in units per second; in samples where a sample's units are not known."""
    units_per_s = workload.units_of(samples_per_s)
    return per_second(samples_per_s if units_per_s is None else units_per_s)


def _unit(workload: Workload) -> str:
    unknown = workload.units_per_sample is None
    return workload.samples_name if unknown else workload.throughput_unit.value


def _mean_errors(prediction: Prediction) -> str:
    skill = prediction.skill
    if skill is None:
        return "No cell could be left out to measure its error."
    return (
        f"Mean error on {counted(len(skill.points), 'left-out cell')}: model "
        f"{percent(skill.model.mean)} %, no change {percent(skill.null.mean)} %."
    )


def errors(forecast: Forecast, device: Device) -> Iterator[str]:
    """Yield the errors on left-out cells, a line for each series and way of leaving out."""
    series = {_series(p): None for p in forecast.predictions}
    skills = {(_series(p), p.skill.how): p.skill for p in forecast.predictions if p.skill}
    for (name, how), skill in skills.items():
        yield (
            f"{name + ': ' if len(series) > 1 else ''}error on "
            f"{counted(len(skill.points), 'left-out cell')} ({how}), mean / 90th "
            f"percentile / worst: model {_three(skill.model)} %, no change {_three(skill.null)} %"
        )
    if any(p.method is Method.NULL for p in forecast.predictions):
        yield NULL_SHOWN.format(unit=unit(device))


def _series(prediction: Prediction) -> str:
    """Return the strategy and treatment of a prediction."""
    target = prediction.target
    return ", ".join(filter(None, (target.strategy.value, target.treatment)))


def _three(of: Errors) -> str:
    return " / ".join(percent(error) for error in (of.mean, of.p90, of.worst))


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
        (cell_label(_place(line.prediction), group.device), line)
        for line in lines(group, forecast, cluster)
    ]
    notes = [
        *forecast.notes,
        *remarks(forecast, group.device),
        *refused(forecast.refusals, group.device),
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
