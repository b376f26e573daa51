"""Predictions in words: the places they are of, what they rest on, and why there are none."""

from collections.abc import Iterable, Iterator

from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import listed
from hpml_jobs.predict.values import Forecast, Prediction, Refusal, Skill
from hpml_jobs.report.merge import outlook
from hpml_jobs.report.merge.rows import Place
from hpml_jobs.report.text.captions import cell_label, full_label
from hpml_jobs.report.text.numbers import percent


def label(of: Prediction | Refusal, device: Device) -> str:
    """Return the name of a place that was not measured: `ddp 8-GPU b512`."""
    return cell_label(Place(outlook.setup_of(of.target), of.target.batch), device)


def errors(skill: Skill) -> str:
    """Return the mean errors of the model and of no change on left-out cells."""
    return (
        f"error on left-out cells {percent(skill.model.mean)} % (no change per GPU "
        f"{percent(skill.null.mean)} %)"
    )


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
        name = full_label(outlook.setup_of(refusal.target), device)
        batches.setdefault(name, []).append(refusal.target.batch)
    names: dict[tuple[int, ...], list[str]] = {}
    for name, of_setup in batches.items():
        names.setdefault(tuple(of_setup), []).append(name)
    return "; ".join(
        f"{', '.join(of_batches)} at batch {listed(sizes)}" for sizes, of_batches in names.items()
    )
