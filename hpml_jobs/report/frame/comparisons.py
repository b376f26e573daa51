"""Comparisons in words: which of two cells is faster, which of two means is larger."""

from collections.abc import Callable, Sequence

from hpml_jobs.report.frame.decision import Comparison, runs_needed
from hpml_jobs.report.frame.learning import Mean
from hpml_jobs.report.frame.numbers import ratio, seconds


def mean_text(mean: Mean, words: Callable[[float], str]) -> str:
    """Return a mean with its deviation.

    >>> from hpml_jobs.report.frame.numbers import accuracy
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


def comparison_text(comparison: Comparison) -> str:
    """Return in words how the subject's times compare with the other's, with the ratio.

    >>> from hpml_jobs.report.frame.decision import compare
    >>> comparison_text(compare([8.0, 8.1, 8.2, 8.1], [8.2, 8.0, 8.1, 8.1]))
    'no significant difference: 1.00 [0.976, 1.02] times the seconds'
    >>> comparison_text(compare([9.0, 9.1, 9.2, 9.3], [8.0, 8.1, 8.2, 8.1]))
    'slower: 1.13 [1.10, 1.16] times the seconds'
    >>> comparison_text(compare([8.0, 8.1, 8.2, 8.1], [16.0, 16.1, 16.2, 16.1]))
    'faster: 0.503 [0.494, 0.512] times the seconds'
    >>> comparison_text(compare([9.0, 9.1], [8.0]))
    'too few runs to tell: 9.000 to 9.100 s against 8.000 s (4 runs of each are needed)'
    """
    decision = comparison.decision.value
    estimate, interval = comparison.ratio
    if comparison.p is None:
        runs = f"{runs_needed(comparison.tests)} runs of each are needed"
        return (
            f"{decision}: {_range(comparison.subject)} against {_range(comparison.other)} ({runs})"
        )
    ends = f" [{ratio(interval.low)}, {ratio(interval.high)}]" if interval else ""
    return f"{decision}: {ratio(estimate)}{ends} times the seconds"


def _range(times_s: Sequence[float]) -> str:
    """Return `8.000 to 8.200 s`, or `8.000 s` of one run."""
    return f"{' to '.join(dict.fromkeys(map(seconds, (min(times_s), max(times_s)))))} s"
