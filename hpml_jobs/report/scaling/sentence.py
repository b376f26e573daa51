"""Sentences on a gap: what takes how much of the ideal speedup, and the speedup without it."""

from hpml_jobs.core.text import listed
from hpml_jobs.report.frame.captions import mark, units, why_unsplit
from hpml_jobs.report.frame.numbers import significant, three_digits
from hpml_jobs.report.scaling.causes import EACH_OTHER, GapCause
from hpml_jobs.report.scaling.gap import Gap
from hpml_jobs.results.checks.comparison import EFFICIENCY_LIMIT
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

NEARLY_IDEAL = 0.95
"""The share of the ideal speedup from which there is nothing to explain."""

EQUAL = 0.8
"""A second part of at least this share of the largest is named with it."""

WORDS: dict[str, tuple[str, str]] = {
    GapCause.EXCHANGE: ("exchange between {units}", "without exchange"),
    GapCause.LOADER: ("the loader", "with a loader that never stalls"),
    GapCause.WAITING: ("waiting for {late}", "without waiting"),
    GapCause.CPUS: ("waiting for CPUs", "with enough CPUs"),
}
"""Each known cause in a sentence, and an epoch without it."""


def gap_sentence(group: ConditionGroup, row: Row, gap: Gap) -> str:
    """Return what is missing to the ideal speedup and its largest cause; empty if nothing is."""
    if gap.speedup > EFFICIENCY_LIMIT * gap.ideal:
        return "More than the ideal speedup needs an explanation: measure both again."
    if gap.speedup >= NEARLY_IDEAL * gap.ideal:
        return ""
    missing = mark(digits(gap.missing), is_doubtful=gap.is_doubtful)
    names = _names(gap, units(group.device))
    phrases = {cause: f"is {name}" for cause, name in names.items()}
    phrases[GapCause.UNEXPLAINED] = "has no measured cause"
    values = {cause: part.value for cause, part in gap.parts.items()}
    unexplained = gap.parts[GapCause.UNEXPLAINED]
    is_unknown = unexplained.low is not None and unexplained.low <= 0
    if is_unknown or not gap.is_split:
        values[GapCause.UNEXPLAINED] = 0.0
    first, second, *_ = sorted(values, key=values.__getitem__, reverse=True)
    texts = {
        cause: mark(digits(values[cause]), is_doubtful=gap.doubts_parts)
        for cause in (first, second)
    }
    if not gap.is_split:
        why = why_unsplit(group, row)
        if digits(values[first]) == "0":
            return f"The missing {missing} is not split: {why}."
        part = f"{texts[first]} {phrases[first]}"
        return f"Of the missing {missing}, {part}; the rest is not split: {why}."
    if values[first] > gap.missing:
        start = f"{names[first][0].upper()}{names[first][1:]} takes {texts[first]}"
        return f"{start} of speedup. Only {missing} is missing: computation is faster than on one."
    if values[second] >= EQUAL * values[first]:
        largest = (
            f"{texts[first]} {phrases[first]} and {texts[second]} {phrases[second]}"
        )
        return f"Of the missing {missing}, {largest}."
    if values[first] >= gap.missing / 2:
        return f"Most of the missing {missing} {phrases[first]} ({texts[first]})."
    return f"Of the missing {missing}, {texts[first]} {phrases[first]}."


def without_sentence(group: ConditionGroup, gap: Gap) -> str:
    """Return the speedup without the largest cause, as it was measured or replayed; "" if none."""
    without = gap.without
    if without is None or gap.speedup >= NEARLY_IDEAL * gap.ideal:
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


def digits(value: float) -> str:
    """Return a part with two decimals at most."""
    return significant(value, 3, most_decimals=2)
