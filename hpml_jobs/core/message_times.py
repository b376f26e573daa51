"""Times of messages by their size: pooled over cells, and interpolated."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from statistics import median


def pooled(cells: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Return the median over cells of their times, by message bytes.

    >>> pooled([{1024: 1.0}, {1024: 3.0, 4096: 5.0}, {1024: 2.0}])
    {1024: 2.0, 4096: 5.0}
    """
    times_by_size: dict[int, list[float]] = {}
    for times_s in cells:
        for size, time_s in times_s.items():
            if time_s > 0:
                times_by_size.setdefault(size, []).append(time_s)
    return {size: median(times) for size, times in sorted(times_by_size.items())}


def interpolated_s(times_s: Mapping[int, float], message_bytes: int) -> float | None:
    """Return the time of a message by linear interpolation; None outside the measured sizes.

    >>> interpolated_s({100: 1.0, 300: 2.0}, 200), interpolated_s({100: 1.0, 300: 2.0}, 400)
    (1.5, None)
    """
    sizes: Sequence[int] = sorted(times_s)
    if not sizes or not sizes[0] <= message_bytes <= sizes[-1]:
        return None
    index = bisect_left(sizes, message_bytes)
    if sizes[index] == message_bytes:
        return times_s[message_bytes]
    low, high = sizes[index - 1], sizes[index]
    share = (message_bytes - low) / (high - low)
    return times_s[low] + share * (times_s[high] - times_s[low])
