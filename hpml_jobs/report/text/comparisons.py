"""Comparisons in words: which of two cells is faster, which of two means is larger."""

from collections.abc import Callable, Sequence
from statistics import median

from hpml_jobs.core.formulas import coverage_of_range
from hpml_jobs.report.merge.learning import Mean
from hpml_jobs.report.merge.statistics import CONFIDENCE, differ


def mean_text(mean: Mean, words: Callable[[float], str]) -> str:
    """Return a mean with its deviation.

    >>> from hpml_jobs.report.text.numbers import accuracy
    >>> mean_text(Mean(0.7132, 0.0041), accuracy), mean_text(Mean(0.7132, None), accuracy)
    ('71.32 ± 0.41', '71.32')
    """
    if mean.deviation is None:
        return words(mean.mean)
    return f"{words(mean.mean)} ± {words(mean.deviation)}"


def compare_means(first: Mean, second: Mean) -> str:
    """Return in words whether two means differ by more than their deviations together.

    >>> compare_means(Mean(0.60, 0.01), Mean(0.65, 0.02))
    'more than the deviations'
    >>> compare_means(Mean(0.60, 0.01), Mean(0.62, 0.02))
    'within the deviations'
    >>> compare_means(Mean(0.60, None), Mean(0.65, 0.02))
    'single seed, not comparable'
    """
    if first.deviation is None or second.deviation is None:
        return "single seed, not comparable"
    beyond = abs(first.mean - second.mean) > first.deviation + second.deviation
    return "more than the deviations" if beyond else "within the deviations"


def compare_runs(subject: Sequence[float], other: Sequence[float]) -> str:
    """Return in words how the seconds of `subject` compare with those of `other`.

    >>> compare_runs([8.0, 8.1, 8.2], [8.2, 8.3, 8.5])
    'no significant difference'
    >>> compare_runs([9.0, 9.1], [8.0, 8.2])
    'slower (2 runs: 50 % confidence)'
    """
    result = differ(subject, other)
    if result is None:
        return "single run, not comparable"
    if not result:
        return "no significant difference"
    word = "faster" if median(subject) < median(other) else "slower"
    fewest = min(len(subject), len(other))
    coverage = coverage_of_range(fewest)
    confidence = f" ({fewest} runs: {100 * coverage:.3g} % confidence)"
    return word if coverage >= CONFIDENCE else f"{word}{confidence}"
