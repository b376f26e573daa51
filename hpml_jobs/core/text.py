"""How numbers, durations and moments are said."""

import time


def counted(number: int, word: str) -> str:
    """A number with its word.

    >>> counted(1, "cell"), counted(9, "cell")
    ('1 cell', '9 cells')
    """
    return f"{number} {word}{'' if number == 1 else 's'}"


def lasting(seconds: float) -> str:
    """A duration in one or two units.

    >>> [lasting(s) for s in (0.4, 59, 61, 3_599, 3_900, 100_000)]
    ['0 s', '59 s', '1 min', '60 min', '1 h 05 min', '1 d 3 h']
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if seconds < 3_600:
        return f"{minutes} min"
    if seconds < 86_400:
        return f"{minutes // 60} h {minutes % 60:02} min"
    return f"{minutes // 1_440} d {minutes % 1_440 // 60} h"


def clock(moment: float, now: float) -> str:
    """A moment as people of this time zone say it; with its day where that is not today."""
    day = "" if time.localtime(moment)[:3] == time.localtime(now)[:3] else "%Y-%m-%d "
    return time.strftime(f"{day}%H:%M", time.localtime(moment))


def percent_text(share: float) -> str:
    """A share of 1 in percent, two decimals at most.

    >>> [percent_text(share) for share in (0.05, 0.1234, 0.37, 1e-12)]
    ['5 %', '12.34 %', '37 %', '0 %']
    """
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + " %"
