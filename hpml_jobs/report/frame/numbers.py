"""Rounding of numbers in one place, so that tables, captions and notes show the same digits."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from hpml_jobs.core.text import percent_text

T = TypeVar("T", bound=Any)

DASH = "–"
"""The text for a missing number: an en dash, which cannot be mistaken for a minus sign."""

OOM = "OOM"
"""The text for a batch that did not fit into memory."""


def significant(
    value: float, digits: int, least_decimals: int = 0, most_decimals: int = 12
) -> str:
    """Return a number with so many significant digits, never in scientific notation.

    What is rounded to nothing is 0, without a sign.

    >>> [significant(value, 3) for value in (1.5773, 0.8699, 235.26, 0.01234, 0.0, 0.0000204)]
    ['1.58', '0.870', '235', '0.0123', '0', '0.0000204']
    >>> significant(-2e-9, 3, most_decimals=5), significant(9.996, 3)
    ('0', '10.0')
    """
    if value == 0:
        return "0"
    magnitude = int(f"{value:.{digits - 1}e}".partition("e")[2])  # after rounding
    decimals = min(most_decimals, max(least_decimals, digits - 1 - magnitude))
    return f"{value:.{decimals}f}" if round(value, decimals) else "0"


def seconds(value: float) -> str:
    """Return seconds: four significant digits from one second, three below, 10 us at the finest.

    >>> [seconds(value) for value in (48.612, 8.23149, 0.8231, 0.02317, 1234.56, -0.1234, 1e-9)]
    ['48.61', '8.231', '0.823', '0.0232', '1234.6', '-0.123', '0']
    >>> seconds(9.9996)
    '10.00'
    """
    return significant(
        value, 4 if abs(value) >= 1 else 3, least_decimals=1, most_decimals=5
    )


def count(value: int) -> str:
    """Return a count with separators of thousands.

    >>> count(11_173_962)
    '11,173,962'
    """
    return f"{value:,}"


def span(values: Iterable[T], text: Callable[[T], str] = str) -> str:
    """Return the least and the most of one or more values, which are one if their texts are equal.

    >>> span([5, 3, 4]), span([0.31, 0.32], share_text), span([0.5, 0.5001], share_text)
    ('3 to 5', '31 % to 32 %', '50 %')
    """
    ordered = sorted(values)
    return " to ".join(dict.fromkeys(map(text, (ordered[0], ordered[-1]))))


def aside(text: str) -> str:
    """Return a text as an aside, ` (text)`; nothing of an empty one."""
    return f" ({text})" if text else ""


def verb(number: int, of_one: str, of_several: str) -> str:
    """Return the form of a verb for so many things."""
    return of_one if number == 1 else of_several


def three_digits(value: float) -> str:
    """Return a number with three significant digits.

    >>> three_digits(48.612 / 30.819)
    '1.58'
    """
    return significant(value, 3)


def per_second(value: float) -> str:
    """Return a throughput as a whole number; below 100 with three significant digits.

    >>> per_second(69_070.4), per_second(142.0), per_second(29.7), per_second(3.2)
    ('69,070', '142', '29.7', '3.20')
    """
    return count(round(value)) if value >= 100 else significant(value, 3)


def share_text(share: float) -> str:
    """Return a share in percent for a sentence.

    >>> share_text(0.6562), share_text(0.7)
    ('65.6 %', '70 %')
    """
    return percent_text(share, 1)


def percent(share: float) -> str:
    """Return a share as a number of percent: one decimal, two below 1 %.

    >>> [percent(share) for share in (0.963, 0.0042, -0.0123, -1e-12, 0.0, 0.00996)]
    ['96.3', '0.42', '-1.2', '0', '0', '1.0']
    """
    decimals = 1 if round(abs(share), 4) >= 0.01 else 2
    return f"{100 * share:.{decimals}f}" if round(100 * share, decimals) else "0"


def accuracy(share: float) -> str:
    """Return an accuracy in percent with two decimals.

    >>> accuracy(0.71324)
    '71.32'
    """
    return f"{100 * share:.2f}"


def loss(value: float) -> str:
    """Return a loss with four decimals.

    >>> loss(1.23456)
    '1.2346'
    """
    return f"{value:.4f}"


def milliseconds(value_s: float) -> str:
    """Return seconds as milliseconds, without the unit.

    >>> milliseconds(0.0325)
    '32.5'
    """
    return significant(1e3 * value_s, 3)


def cost(gpu_s: float) -> str:
    """Return GPU-seconds with three digits, and all digits before the point."""
    return significant(gpu_s, 3, most_decimals=3)
