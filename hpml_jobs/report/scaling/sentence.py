"""Sentences on a gap: the speedup, what is missing and what takes it; the speedup without."""

from collections.abc import Iterator, Mapping

from hpml_jobs.core.text import listed
from hpml_jobs.report.frame.captions import mark, size, units, why_unsplit
from hpml_jobs.report.frame.numbers import significant, three_digits
from hpml_jobs.report.scaling.causes import EACH_OTHER, GapCause
from hpml_jobs.report.scaling.gap import Gap
from hpml_jobs.results.checks.comparison import EFFICIENCY_LIMIT
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

NEARLY_IDEAL = 0.95
"""The share of the ideal speedup from which there is nothing to explain."""

REST, LEAST = 0.05, 0.02
"""Parts that are at most `REST` of the ideal together are the rest, but for one above `LEAST`."""

WORDS: dict[str, tuple[str, str]] = {
    GapCause.EXCHANGE: ("exchange between {units}", "without exchange"),
    GapCause.LOADER: ("the loader", "with a loader that never stalls"),
    GapCause.WAITING: ("waiting for {late}", "without waiting"),
    GapCause.CPUS: ("waiting for CPUs", "with enough CPUs"),
}
"""Each known cause in a sentence, and an epoch without it."""


def gap_sentence(group: ConditionGroup, row: Row, gap: Gap) -> str:
    """Return the speedup, what is missing and what takes it."""
    reference = size(round(row.gpus / gap.ideal), group.device)
    speedup = mark(three_digits(gap.speedup), is_doubtful=gap.is_doubtful)
    one_run = "one run, " if len(row.runs) == 1 else ""
    text = (
        f"{size(row.gpus, group.device)} are {speedup} times as fast as {reference} at "
        f"batch {row.batch_per_gpu} ({one_run}ideal: {gap.ideal:.3g})"
    )
    if gap.speedup > EFFICIENCY_LIMIT * gap.ideal:
        return f"{text}. This needs an explanation; measure both cells again."
    if gap.speedup >= NEARLY_IDEAL * gap.ideal:
        return f"{text}: nothing to explain."
    named = _named(gap)
    names = _names(gap, units(group.device))
    clauses = list(_clauses(gap, named, names))
    missing = mark(digits(gap.missing), is_doubtful=gap.is_doubtful)
    is_open = gap.is_split and not gap.is_decided
    ends = [f"The missing {missing}: {listed(clauses)}"] if clauses else []
    if named.get(GapCause.UNEXPLAINED, 0.0) < 0:
        # The parts are more than the gap: computation is faster than on the reference.
        largest = next(cause for cause in named if cause in names)
        ends = [] if is_open else [f"Largest cause: {names[largest]}"]
    elif not gap.is_split:
        known_sum = sum(part for cause, part in named.items() if cause in WORDS)
        which = "other" if clauses else "missing"
        unsplit = digits(gap.missing - known_sum)
        ends.append(f"The {which} {unsplit} is not split: {why_unsplit(group, row)}")
    if is_open:
        ends.append("Too few runs to tell which cause is the largest")
    return f"{'. '.join([text, *ends])}."


def without_sentence(group: ConditionGroup, gap: Gap) -> str:
    """Return the speedup without the largest cause, as it was measured or replayed; "" if none."""
    without = gap.without
    if without is None or gap.speedup >= NEARLY_IDEAL * gap.ideal:
        return ""
    if not without.causes & _named(gap).keys():
        return ""
    names = _names(gap, units(group.device))
    causes = [cause for cause in GapCause if cause in without.causes]
    least = "at least " if without.is_least else ""
    speedup = (
        f"{least}{mark(three_digits(without.speedup), is_doubtful=gap.doubts_parts)}"
    )
    if len(causes) > 1:
        both = f"{listed([names[cause] for cause in causes])}, which run side by side"
        return f"Replayed without {both}, the speedup is {speedup}"
    words = WORDS[causes[0]][1]
    how = "Measured" if without.is_measured else "Replayed"
    return f"{how} {words}, the speedup is {speedup}"


def _names(gap: Gap, gpus: str) -> dict[str, str]:
    """Return each known cause in a sentence on this gap; `gpus`: GPUs or processes."""
    late = (
        "the slowest of each step"
        if gap.late == EACH_OTHER
        else f"the slowest ({gap.late})"
    )
    names = {
        cause: name.format(units=gpus, late=late) for cause, (name, _) in WORDS.items()
    }
    if gap.has_waiting:
        names[GapCause.EXCHANGE] += " (waiting included)"
    return names


def _named(gap: Gap) -> dict[str, float]:
    """Return the parts that a sentence names, the largest first, then the rest: parts that are
    small together. What is unexplained is last, or first where it is the largest.
    """
    values = {cause: part.value for cause, part in gap.parts.items()}
    small = _small(values, gap.ideal)
    known_parts: dict[str, float] = {}
    other_parts: dict[str, float] = {}
    largest = max(values, key=values.__getitem__)
    for cause in sorted(values, key=lambda cause: -values[cause]):
        if cause not in small:
            parts = known_parts if cause in WORDS else other_parts
            parts[cause] = values[cause]
    known_parts["rest"] = sum(values[cause] for cause in small)
    if largest in other_parts:
        return other_parts | known_parts
    return known_parts | other_parts


def _small(values: Mapping[GapCause, float], ideal: float) -> set[GapCause]:
    """Return the causes whose parts are small together, but for a single one to be named."""
    small = set()
    left = REST * ideal
    for cause in sorted(values, key=lambda cause: abs(values[cause])):
        left -= abs(values[cause])
        small |= {cause} if left >= 0 else set()
    some = {cause for cause in small if abs(values[cause]) > LEAST * ideal}
    return small - some if len(some) == 1 else small


def _clauses(
    gap: Gap, named: Mapping[str, float], names: Mapping[str, str]
) -> Iterator[str]:
    """Yield what takes how much of the ideal speedup."""
    verb = "takes "
    for cause, value in named.items():
        if cause in names:
            text = mark(digits(value), is_doubtful=gap.doubts_parts)
            yield f"{names[cause]} {verb}{text}"
            verb = ""
        elif gap.is_split and digits(value) != "0":
            yield from _other_clause(cause, value, gap)


def _other_clause(cause: str, value: float, gap: Gap) -> Iterator[str]:
    """Yield what the small causes take or give back, or what is unexplained."""
    text = mark(digits(abs(value)), is_doubtful=gap.doubts_parts)
    if cause == "rest":
        verb = "" if value > 0 else "give back "
        yield f"smaller parts {verb}{text}"
    elif value > 0:
        yield f"{text} is unexplained"


def digits(value: float) -> str:
    """Return a part with two decimals at most."""
    return significant(value, 3, most_decimals=2)
