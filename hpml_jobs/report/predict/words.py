"""Predictions in words: the answer, errors, what figures rest on, and why there are none."""

from collections.abc import Iterable, Iterator

from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import counted, listed
from hpml_jobs.core.workload import Workload
from hpml_jobs.predict.forecast import Forecast, Method, Prediction, Refusal
from hpml_jobs.predict.left_out import Errors
from hpml_jobs.report.frame.captions import cell_label, full_label, unit, units
from hpml_jobs.report.frame.numbers import per_second, percent
from hpml_jobs.report.frame.rows import Place
from hpml_jobs.report.predict import rules

NULL_SHOWN = (
    "no change per {unit} has no larger mean error than the model on left-out cells: where the "
    "figure is of it, the model adds nothing"
)


def label(of: Prediction | Refusal, device: Device) -> str:
    """Return the name of a place that was not measured: `ddp 8-GPU b512`."""
    return cell_label(Place(rules.setup_of(of.target), of.target.batch), device)


def remarks(forecast: Forecast, device: Device) -> Iterator[str]:
    """Yield each remark once, with the predictions that it is about unless it is about all."""
    by_remark: dict[str, list[str]] = {}
    for prediction in forecast.predictions:
        for remark in prediction.remarks:
            by_remark.setdefault(remark, []).append(label(prediction, device))
    for remark, labels in by_remark.items():
        is_of_all = len(labels) == len(forecast.predictions)
        yield remark if is_of_all else f"{', '.join(labels)}: {remark}"


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
    batches: dict[str, list[int]] = {}
    for refusal in refusals:
        name = full_label(rules.setup_of(refusal.target), device)
        batches.setdefault(name, []).append(refusal.target.batch)
    names: dict[tuple[int, ...], list[str]] = {}
    for name, of_setup in batches.items():
        names.setdefault(tuple(of_setup), []).append(name)
    return "; ".join(
        f"{', '.join(of_batches)} at batch {listed(sizes)}" for sizes, of_batches in names.items()
    )


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
        f"{_rate(best.samples_per_s, workload)} {_unit(workload)}/s"
    )
    if best.low_s is not None and best.high_s is not None:
        ends = (_rate(target.samples / end_s, workload) for end_s in (best.high_s, best.low_s))
        text += f", 90 % band {' to '.join(ends)}"
    if best.method is Method.NULL:
        text += f", by no change per {unit(device)}"
    return f"{text}. {_mean_errors(best)}"


def _rate(samples_per_s: float, workload: Workload) -> str:
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
