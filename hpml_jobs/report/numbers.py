"""How numbers are rounded, in one place: a table, a caption and a note say the same digits."""

from math import floor, log10

DASH = "–"
"""What stands where there is no number: an en dash, which nobody reads as a minus sign."""


def significant(value: float, digits: int, least_decimals: int = 0) -> str:
    """A number with so many significant digits, never in scientific notation.

    >>> [significant(value, 3) for value in (1.5773, 0.8699, 235.26, 0.01234, 0.0)]
    ['1.58', '0.870', '235', '0.0123', '0']
    """
    if value == 0:
        return "0"
    magnitude = floor(log10(abs(value)))
    decimals = max(least_decimals, digits - 1 - magnitude)
    return f"{value:.{decimals}f}"


def seconds(value: float) -> str:
    """Seconds: four significant digits from one second up, three below.

    >>> [seconds(value) for value in (48.612, 8.23149, 0.8231, 0.02317, 1234.56, -0.1234)]
    ['48.61', '8.231', '0.823', '0.0232', '1234.6', '-0.123']
    """
    return significant(value, 4 if abs(value) >= 1 else 3, least_decimals=1)


def ratio(value: float) -> str:
    """A speedup: three significant digits.

    >>> ratio(48.612 / 30.819)
    '1.58'
    """
    return significant(value, 3)


def gb_per_s(value: float) -> str:
    """A bandwidth in GB/s (1e9 bytes): three significant digits.

    >>> gb_per_s(6.570289656)
    '6.57'
    """
    return significant(value, 3)


def count(value: int) -> str:
    """A count for reading.

    >>> count(11_173_962)
    '11,173,962'
    """
    return f"{value:,}"
