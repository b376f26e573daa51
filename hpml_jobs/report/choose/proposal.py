"""The evidence of scaling as a paragraph that can be copied into a proposal for compute time."""

from hpml_jobs.core.statistics import ratio_interval
from hpml_jobs.core.strategies import Device
from hpml_jobs.report.choose import words
from hpml_jobs.report.choose.rules import Candidate, Choice
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import per_second, ratio, seconds, significant


def speedup_text(choice: Choice, candidate: Candidate) -> str:
    """Return the speedup over the reference with its interval, if both have repeats."""
    text = ratio(choice.speedup(candidate))
    interval = ratio_interval(choice.reference.epochs_s, candidate.epochs_s)
    if interval is None or candidate is choice.reference:
        return text
    return f"{text} [{ratio(interval.low)}, {ratio(interval.high)}]"


def proposal(group: ConditionGroup, choice: Choice, version: str) -> str:
    """Return the paragraph: what was measured, the speedups by size, the request, and how."""
    device = group.device
    sizes = [candidate for candidate in choice.by_size if candidate is not choice.reference]
    parts = [_preliminary(choice, device), _measured(group, version), _reference(choice, device)]
    parts += [_size(choice, candidate, device) for candidate in sizes]
    parts += [_request(choice, device), _how(group, choice)]
    return " ".join(part for part in parts if part)


def _preliminary(choice: Choice, device: Device) -> str:
    """Return that figures are doubtful; empty if no check warns of a time behind the choice."""
    names = words.doubtful_names(choice, device)
    if not names:
        return ""
    return (
        f"Preliminary: a data-quality check warns of the time of {'; '.join(names)}, which should "
        "be measured again before this is submitted."
    )


def _measured(group: ConditionGroup, version: str) -> str:
    setting = captions.setting(group).removesuffix(".")
    if group.imported:
        return f"Evidence of scaling: {setting}."
    return f"Evidence of scaling, measured with hpml_jobs {version}: {setting}."


def _reference(choice: Choice, device: Device) -> str:
    reference = choice.reference
    rate = reference.units_per_s
    throughput = "" if rate is None else f" ({per_second(rate)} {reference.unit.value}/s)"
    batches = {c.row.batch_per_gpu for c in choice.candidates if c.row.gpus == reference.row.gpus}
    best = "the best of the measured batches, " if len(batches) > 1 else ""
    return (
        f"On {words.size(reference, device)}, the smallest size measured, "
        f"{captions.an_epoch(reference.work)} {'take' if reference.work else 'takes'} "
        f"{seconds(reference.epoch_s)} s at {best}batch {reference.row.batch_per_gpu} per "
        f"{captions.unit(device)}{throughput}."
    )


def _size(choice: Choice, candidate: Candidate, device: Device) -> str:
    takes = "they take" if candidate.work else "it takes"
    return (
        f"On {words.name(candidate, device)} {takes} {seconds(candidate.epoch_s)} s: speedup "
        f"{speedup_text(choice, candidate)}, parallel efficiency "
        f"{words.efficiency(candidate, choice, device)}, {significant(candidate.gpu_hours, 3)} "
        f"{words.hours_unit(device)} per {captions.work_text(candidate.work)}."
    )


def _request(choice: Choice, device: Device) -> str:
    limit = ratio(choice.wish.min_efficiency)
    if choice.ask is None:
        return f"No cell reaches the threshold of efficiency, {limit}."
    asked = choice.ask.candidate
    return (
        f"We request {words.size(asked, device)} per job at batch {asked.row.batch_per_gpu} per "
        f"{captions.unit(device)}: the largest size with a parallel efficiency of {limit} or more."
    )


def _how(group: ConditionGroup, choice: Choice) -> str:
    rows = [candidate.row for candidate in choice.by_size]
    runs = captions.runs(rows)
    if group.rate_units:
        units = " and ".join(group.rate_units)
        return f"Times are computed from rates in {units}, as reported by their source. {runs}"
    if group.imported:
        return f"Times are those of whole epochs, as reported by their source. {runs}"
    return (
        "Times are of the training loop of one epoch after a warm-up epoch, start-up excluded and "
        f"data loading included, of the slowest process. {runs}"
    )
