"""The time of an epoch from the history of a run: rows of epochs, or time stamps of steps."""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from statistics import median, median_low
from typing import NamedTuple

from hpml_jobs.core.text import counted, duration_text
from hpml_jobs.exchange.csv_rows import FieldError

TOLERANCE = 0.2
"""The least share of the median by which an interval is longer than others because of a gap."""

SCATTER = 7.4
"""The same in median absolute deviations: 5 standard deviations of normal times."""

SHORT = 0.7
"""The share of the median below which an interval is shorter than others."""

STEPS_PER_GAP = 20
"""Where gaps are more frequent, they may be a part of training, e.g. waiting for data."""

RESOLUTIONS = 20
"""Time stamps are compared over so many times their last digit, where an epoch is that long."""

LEAST_RESOLUTIONS = 5
"""Over less, the time of a step is not known."""

USUAL_STEP_S = (1e-3, 100.0)

_UNITS = ((1e17, 1e-9, "ns"), (1e14, 1e-6, "us"), (1e11, 1e-3, "ms"))
"""The least stamp that is in a unit, its seconds and its name: 1e11 s is the year 5138."""

SECOND_RUN = (
    "a resume, or two runs under one name: name runs by r.id (docs/share.md), or keep one of them"
)

_EPOCHS_AGAIN = "; if steps begin again in each epoch, add a column epoch"


class RunTime(NamedTuple):
    """Seconds of an epoch of a run, its iterations where they are known.

    `has_warmup` says that there is one epoch only, `notes` how the time was found.
    """

    epoch_s: float
    has_warmup: bool
    notes: list[str]
    iterations: int | None = None


class Stamp(NamedTuple):
    """A row of a run: its line, its epoch and step, the time and the last digit of it."""

    line: int
    epoch: float | None
    step: int
    at_s: float
    resolution_s: float


class Interval(NamedTuple):
    """The seconds and steps between two rows of a run, and the step of the second one."""

    seconds: float
    steps: int
    end: int


def resolution(text: str) -> float:
    """Return the value of the last digit of a time.

    >>> [resolution(text) for text in ("17.25", "1.7e3", "2026-01-01T10:00:00.5Z", "10")]
    [0.01, 100.0, 0.1, 1.0]
    """
    if ":" not in text:
        return 10.0 ** int(Decimal(text).as_tuple().exponent)
    fraction = re.search(r"[.,](\d+)", text)
    return 10.0 ** -len(fraction[1]) if fraction else 1.0


def by_seconds(rows: Sequence[tuple[int, float, float]]) -> RunTime:
    """Return the median of a run's epochs, given as (line, epoch, seconds), without the first.

    Raises:
        FieldError: an epoch is given twice, there is only one, or the seconds are not of epochs.
    """
    ordered = sorted(rows, key=lambda row: row[1])
    for (line, epoch, _), (other, following, _) in pairwise(ordered):
        if epoch == following:
            raise FieldError(
                f"epoch {epoch:g} is given twice, in lines {line} and {other}: {SECOND_RUN}"
            )
    if len(ordered) < 2:
        raise FieldError("one epoch is the warm-up: add the seconds of a second one")
    seconds = [row[2] for row in ordered]
    if _are_since_start(seconds):
        raise FieldError(
            f"its seconds rise from {seconds[0]:g} to {seconds[-1]:g}, as seconds since the start "
            "do: give those of each epoch, the difference to the epoch before"
        )
    notes: list[str] = []
    return RunTime(_median({epoch: s for _, epoch, s in ordered[1:]}, notes), False, notes)


def _are_since_start(seconds: Sequence[float]) -> bool:
    """Return whether seconds are since the start or any other moment: they rise evenly."""
    rises = [later - earlier for earlier, later in pairwise(seconds)]
    if median_low(rises) >= min(seconds) / 2:
        return True
    is_even = 0 < max(rises) <= 2 * min(rises)
    return len(rises) > 1 and is_even and seconds[-1] > 1.3 * seconds[0]


def _median(times: Mapping[float, float], notes: list[str]) -> float:
    """Return the median of the times of epochs, those with a pause left out."""
    middle = median_low(times.values())
    if min(times.values()) < middle / 2:
        raise FieldError(
            f"its epochs differ, {min(times.values()):.3g} to {max(times.values()):.3g} s: leave "
            "out those with a pause"
        )
    notes += [
        f"epoch {epoch:g} was left out, {time / middle:.3g} times as long as others"
        for epoch, time in times.items()
        if time > 2 * middle
    ]
    return median(time for time in times.values() if time <= 2 * middle)


def by_steps(stamps: Sequence[Stamp], given: int | None, reason: str) -> RunTime:
    """Return the time of a step times the iterations of an epoch.

    The time of a step is the mean over the intervals between the rows of an epoch without those
    that have a gap, and the median of the epochs without the first, the warm-up. The iterations are
    `given` by `reason`, else counted in whole epochs.

    Raises:
        FieldError: steps are given twice, times go back or are too coarse, gaps cannot be told from
            steps, or the iterations are not known or contradict the steps.
    """
    notes: list[str] = []
    ordered = sorted(_in_seconds(stamps, notes), key=lambda stamp: (stamp.epoch or 0, stamp.step))
    _check_order(ordered)
    epochs: dict[float, list[Stamp]] = {}
    for stamp in ordered:
        epochs.setdefault(stamp.epoch or 0, []).append(stamp)
    if ordered[0].epoch is None:
        iterations = _without_epochs(given)
        warmup = [stamp for stamp in ordered if stamp.step - ordered[0].step < iterations]
        epochs = {0: warmup, 1: ordered[len(warmup) :]}
    else:
        iterations = _iterations(list(epochs.values()), given, reason)
    by_epoch = {epoch: _intervals(members) for epoch, members in epochs.items()}
    first = next(iter(by_epoch))
    later = {epoch: rows for epoch, rows in by_epoch.items() if rows and epoch != first}
    used = later or {first: by_epoch[first]}
    notes += _resolution_notes(used.values(), ordered[0].resolution_s)
    gaps: list[Interval] = []
    step_s = _median({epoch: _mean_step(rows, gaps) for epoch, rows in used.items()}, notes)
    if gaps:
        notes.append(_gaps_text(gaps, step_s))
    if not USUAL_STEP_S[0] <= step_s <= USUAL_STEP_S[1]:
        notes.append(f"a step takes {step_s:.3g} s: are its time stamps in seconds?")
    return RunTime(step_s * iterations, not later, notes, iterations)


def _resolution_notes(epochs: Iterable[Sequence[Interval]], resolution_s: float) -> list[str]:
    """Return a sentence where the last digit of the time stamps matters."""
    seconds = [sum(interval.seconds for interval in intervals) for intervals in epochs if intervals]
    if not seconds:
        raise FieldError("no epoch has two rows: give more rows, or run,epoch,seconds")
    if min(seconds) < LEAST_RESOLUTIONS * resolution_s:
        raise FieldError(
            f"{min(seconds):g} s between its rows is not enough where the last digit of time "
            f"stamps is {resolution_s:g} s: give more rows or digits, or run,epoch,seconds"
        )
    error = resolution_s / min(seconds)
    return [f"its time stamps are coarse: a step is known to {error:.0%}"] if error > 0.02 else []


def _in_seconds(stamps: Sequence[Stamp], notes: list[str]) -> list[Stamp]:
    """Return stamps in seconds, without epochs if these are in fractions, as Trainer of HF has."""
    largest = max(abs(stamp.at_s) for stamp in stamps)
    unit_s, name = next(((s, name) for least, s, name in _UNITS if largest > least), (1.0, ""))
    if name and min(abs(stamp.at_s) for stamp in stamps) < largest / 2:
        raise FieldError(f"some of its time stamps are in {name}, others are not: give one unit")
    if name:
        notes.append(f"time stamps are in {name}")
    has_epochs = all(stamp.epoch is not None and stamp.epoch % 1 == 0 for stamp in stamps)
    resolution_s = min(stamp.resolution_s for stamp in stamps) * unit_s
    return [
        stamp._replace(
            at_s=stamp.at_s * unit_s,
            resolution_s=resolution_s,
            epoch=stamp.epoch if has_epochs else None,
        )
        for stamp in stamps
    ]


def _check_order(stamps: Sequence[Stamp]) -> None:
    """Check that each step is given once, and is not before the one before."""
    for stamp, following in pairwise(stamps):
        lines = f"lines {stamp.line} and {following.line}"
        if (stamp.epoch, stamp.step) == (following.epoch, following.step):
            hint = _EPOCHS_AGAIN if stamp.epoch is None else ""
            raise FieldError(f"step {stamp.step} is given twice, in {lines}: {SECOND_RUN}{hint}")
        if following.at_s < stamp.at_s:
            raise FieldError(
                f"time goes back from step {stamp.step} to step {following.step}, in {lines}: "
                f"{SECOND_RUN}"
            )


def _without_epochs(given: int | None) -> int:
    if given is None:
        raise FieldError(
            "the iterations of an epoch are not in the file: give images= or iterations=, or a "
            "column iterations"
        )
    return given


def _iterations(epochs: Sequence[Sequence[Stamp]], given: int | None, reason: str) -> int:
    """Return the iterations of an epoch: as given, else as the steps of whole epochs say.

    An epoch has at least the steps from its first row to its last. If another one follows, and one
    is before it or it begins with step 0 or 1, less than one interval is missing at each end.
    """
    spans = [members[-1].step - members[0].step for members in epochs]
    whole = [n for n in range(len(epochs) - 1) if n or epochs[0][0].step in (0, 1)]
    every = max((b.step - a.step for rows in epochs for a, b in pairwise(rows)), default=0)
    least = max(spans) + 1
    most = min((spans[n] + 2 * every - 1 for n in whole), default=None)
    if given is None:
        if most is None or not every:
            return _without_epochs(given)
        if least != most:
            raise FieldError(
                f"its rows every {counted(every, 'step')} leave {min(least, most)} to "
                f"{max(least, most)} iterations per epoch: give images= or iterations=, or a "
                "column iterations"
            )
        return least
    if given < least or (every and most is not None and given > most + every):
        counts = f"{least} or more" if most is None else f"{least} to {most}"
        raise FieldError(
            f"its epochs have {counts if least != most else least} steps, but {reason} {given}: "
            "correct that, or the column step, which must count iterations"
        )
    return given


def _intervals(stamps: Sequence[Stamp]) -> list[Interval]:
    """Return the intervals between rows, joined until they are long against the last digit."""
    if len(stamps) < 2:
        return []
    start, *others = stamps
    ends = [start]
    for stamp in others:
        if stamp.at_s - ends[-1].at_s >= RESOLUTIONS * stamp.resolution_s:
            ends.append(stamp)
    ends[-1 if len(ends) > 1 else 1 :] = [others[-1]]
    return [_interval(before, after) for before, after in pairwise(ends)]


def _interval(start: Stamp, end: Stamp) -> Interval:
    return Interval(end.at_s - start.at_s, end.step - start.step, end.step)


def _mean_step(intervals: Sequence[Interval], gaps: list[Interval]) -> float:
    """Return the mean time of a step; intervals with a gap are left out and added to `gaps`."""
    times = [interval.seconds / interval.steps for interval in intervals]
    middle = median_low(times)
    scatter = median_low(abs(time - middle) for time in times)
    longest = middle + max(TOLERANCE * middle, SCATTER * scatter)
    long = [i for i, time in zip(intervals, times, strict=True) if time > longest]
    short = [time for time in times if time < SHORT * middle]
    steps = sum(interval.steps for interval in intervals)
    if len(long) > 1 + steps / STEPS_PER_GAP or len(short) > len(times) / 10:
        raise FieldError(
            f"its steps take from {min(times):.3g} to {max(times):.3g} s: pauses cannot be told "
            "from training; give the seconds of each epoch (run,epoch,seconds)"
        )
    gaps += long
    kept = [i for i, time in zip(intervals, times, strict=True) if time <= longest]
    return sum(i.seconds for i in kept) / sum(i.steps for i in kept)


def _gaps_text(gaps: Sequence[Interval], step_s: float) -> str:
    """Return how long the gaps were without the steps in them, and where the longest was."""
    seconds = [gap.seconds - gap.steps * step_s for gap in gaps]
    longest = max(seconds)
    place = gaps[seconds.index(longest)].end
    if len(gaps) == 1:
        return f"1 gap of {_text(longest)} at step {place} left out"
    return (
        f"{len(gaps)} gaps of {_text(sum(seconds))} in all left out, the longest "
        f"{_text(longest)} at step {place}"
    )


def _text(seconds: float) -> str:
    return duration_text(seconds) if seconds >= 60 else f"{seconds:.3g} s"
