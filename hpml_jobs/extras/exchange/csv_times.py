"""The time of an epoch from the history of a run: rows of epochs, or time stamps of steps."""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from statistics import median, median_low
from typing import NamedTuple

from hpml_jobs.core.text import counted, duration_text
from hpml_jobs.extras.exchange.csv_rows import FieldError

TOLERANCE = 0.1
"""The least share of its epoch's median by which an interval with a gap is longer."""

SCATTER = 7.4
"""The same in median absolute deviations: 5 standard deviations of normal times."""

SHORT = 0.7
"""The share of its epoch's median below which an interval is shorter than others."""

STEPS_PER_GAP = 20
"""Where gaps are more frequent, they may be a part of training, e.g. waiting for data."""

SLOWDOWN = 2.0
"""Where steps take so many times as long as the fastest tenth of the intervals, most have a gap."""

FEW_INTERVALS = 3

LEAST_RESOLUTIONS = 5
"""Over so many times their last digit, time stamps do not tell the time of a step."""

USUAL_STEP_S = (2e-3, 10.0)

LEFT_OUT = 1 / 3
"""The most epochs with a pause: more may be another kind of epochs, e.g. validations."""

LEAST_FRACTION, FRACTION_ERROR = 0.5, 0.02
"""From so large an epoch its rounded fraction says the iterations, with this error."""

RISE, EVEN_RISE = 0.05, 0.01
"""The shares of its time by which each epoch is longer than the one before, if seconds are since
some moment: of any epochs, and of four or more that rise evenly.
"""

_UNITS = ((1e17, 1e-9, "ns"), (1e14, 1e-6, "us"), (1e11, 1e-3, "ms"))
"""The least stamp that is in a unit, its seconds and its name: 1e11 s is the year 5138."""

SECOND_RUN = (
    "a resume, or two runs under one name: "
    "name runs by r.id (docs/share.md), or keep one of them"
)

_EPOCHS_AGAIN = "; if steps begin again in each epoch, add a column epoch"


class RunTime(NamedTuple):
    """Seconds of an epoch of a run; its iterations and the most steps between rows, if known.

    `has_warmup` says that there is one epoch only, `notes` how the time was found.
    """

    epoch_s: float
    has_warmup: bool
    notes: list[str]
    iterations: int | None = None
    every: int = 1


class Stamp(NamedTuple):
    """A row of a run: its line, its epoch and step, the time and the last digit of it."""

    line: int
    epoch: float | None
    step: int
    at_s: float
    resolution_s: float


class TimeInterval(NamedTuple):
    """The seconds and steps between two rows of an epoch, and the step of the second one."""

    seconds: float
    steps: int
    end: int

    @property
    def step_s(self) -> float:
        """Return the mean time of a step."""
        return self.seconds / self.steps


def resolution(text: str) -> float:
    """Return the value of the last digit of a time.

    Raises:
        FieldError: its exponent is of no time.

    >>> [resolution(text) for text in ("17.25", "1.7e3", "2026-01-01T10:00:00.5Z", "10")]
    [0.01, 100.0, 0.1, 1.0]
    """
    if ":" not in text:
        try:
            return 10.0 ** int(Decimal(text).as_tuple().exponent)
        except (InvalidOperation, OverflowError):
            raise FieldError(f"timestamp={text}: expected a number") from None
    fraction = re.search(r"[.,](\d+)", text)
    return 10.0 ** -len(fraction[1]) if fraction else 1.0


def by_seconds(rows: Sequence[tuple[int, float, float]]) -> RunTime:
    """Return the median of a run's epochs, given as (line, epoch, seconds), without the first.

    Raises:
        FieldError: an epoch is given twice, there is only one, or the seconds are not of epochs.
    """
    ordered = sorted(rows, key=lambda row: row[1])
    for line, epoch, _ in ordered:
        if epoch % 1:
            raise FieldError(
                f"line {line}: epoch={epoch:g}: give a row for each whole epoch"
            )
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
    least, most = min(rises), max(rises)
    last = seconds[-1]
    if median_low(rises) >= min(seconds) / 2 or least > RISE * last:
        return True
    is_even = 0 < most <= 2 * least
    return len(rises) > 2 and is_even and least > EVEN_RISE * last


def _median(times: Mapping[float, float], notes: list[str]) -> float:
    """Return the median of the times of epochs, those with a pause left out."""
    middle = median_low(times.values())
    if min(times.values()) < middle / 2:
        raise FieldError(
            f"its epochs differ, {min(times.values()):.3g} to {max(times.values()):.3g} s: leave "
            "out those with a pause"
        )
    paused = [epoch for epoch, time in times.items() if time > 2 * middle]
    if len(paused) > max(1, LEFT_OUT * len(times)):
        raise FieldError(
            f"{len(paused)} of its {counted(len(times), 'epoch')} are more than twice as long as "
            "the others: leave out those that are no training"
        )
    notes += [
        f"epoch {epoch:g} was left out, {time / middle:.3g} times as long as others"
        for epoch, time in times.items()
        if time > 2 * middle
    ]
    return median(time for time in times.values() if time <= 2 * middle)


def by_steps(
    stamps: Sequence[Stamp], given_iterations: int | None, reason: str
) -> RunTime:
    """Return the time of a step times the iterations of an epoch.

    The time of a step is the mean over the intervals between the rows of an epoch without those
    that have a gap, and the median of the epochs without the first, the warm-up. The iterations are
    given by `reason`, else counted in whole epochs.

    Raises:
        FieldError: steps are given twice, times go back or are too coarse, gaps cannot be told from
            steps, or the iterations are not known or contradict the steps.
    """
    notes: list[str] = []
    ordered = sorted(
        _in_seconds(stamps, notes), key=lambda stamp: (stamp.epoch or 0, stamp.step)
    )
    _check_order(ordered)
    epochs = _by_epoch(ordered)
    iterations = _iterations(list(epochs.values()), given_iterations, reason)
    _check_fractions(stamps, iterations, reason)
    if ordered[0].epoch is None:
        epochs = _by_epoch(_with_epochs(ordered, iterations))
    intervals = {epoch: _intervals(members) for epoch, members in epochs.items()}
    by_epoch = {epoch: rows for epoch, rows in intervals.items() if rows}
    if not by_epoch:
        raise FieldError("no epoch has two rows: give more rows, or run,epoch,seconds")
    first = min(epochs)
    later = {epoch: rows for epoch, rows in by_epoch.items() if epoch != first}
    used = later or by_epoch
    resolution_s = ordered[0].resolution_s
    kept, gaps = _without_gaps(used, resolution_s)
    _check_resolution(kept.values(), resolution_s, notes)
    times = {}
    for epoch, rows in kept.items():
        seconds = sum(interval.seconds for interval in rows)
        times[epoch] = seconds / sum(interval.steps for interval in rows)
    step_s = _median(times, notes)
    _check_slowdown(step_s, [i for rows in by_epoch.values() for i in rows], resolution_s)
    if gaps:
        notes.append(_gaps_text(gaps, step_s))
    if (number := sum(map(len, used.values()))) < FEW_INTERVALS:
        text = counted(number, "interval")
        notes.append(
            f"its time is from {text} between rows, where a pause would not be noticed"
        )
    if not USUAL_STEP_S[0] <= step_s <= USUAL_STEP_S[1]:
        notes.append(f"a step takes {step_s:.3g} s: are its time stamps in seconds?")
    steps = sum(interval.steps for rows in by_epoch.values() for interval in rows)
    if steps < iterations / 2:
        notes.append(
            f"its {counted(steps, 'step')} are a part of an epoch of {iterations} iterations: if "
            "they are epochs, give run,epoch,seconds"
        )
    every = max(interval.steps for rows in used.values() for interval in rows)
    return RunTime(step_s * iterations, not later, notes, iterations, every)


def _by_epoch(stamps: Iterable[Stamp]) -> dict[float, list[Stamp]]:
    epochs: dict[float, list[Stamp]] = {}
    for stamp in stamps:
        epochs.setdefault(stamp.epoch or 0, []).append(stamp)
    return epochs


def _with_epochs(stamps: Sequence[Stamp], iterations: int) -> list[Stamp]:
    """Return the stamps with their epochs by the number of the step, which counts from 0 or 1."""
    begin = min(1, stamps[0].step)
    return [s._replace(epoch=(s.step - begin) // iterations) for s in stamps]


def _check_resolution(
    epochs: Iterable[Sequence[TimeInterval]], resolution_s: float, notes: list[str]
) -> None:
    """Refuse time stamps whose last digit is too coarse, and note where it matters."""
    epochs_s = [sum(interval.seconds for interval in intervals) for intervals in epochs]
    shortest = min(epochs_s)
    if shortest < LEAST_RESOLUTIONS * resolution_s:
        raise FieldError(
            f"{shortest:g} s between its rows is not enough where the last digit of time stamps is "
            f"{resolution_s:g} s: give more rows or digits, or run,epoch,seconds"
        )
    if (error := resolution_s / shortest) > 0.02:
        notes.append(f"its time stamps are coarse: a step is known to {error:.0%}")


def _without_gaps(
    epochs: Mapping[float, Sequence[TimeInterval]], resolution_s: float
) -> tuple[dict[float, list[TimeInterval]], list[TimeInterval]]:
    """Return the intervals of each epoch without those that have a gap, and these.

    An interval has one if its steps are longer than the median of its epoch by more than the
    intervals of all epochs scatter.

    Raises:
        FieldError: there are too many, or some are much shorter.
    """
    medians = {}
    pairs: list[tuple[TimeInterval, float]] = []
    for epoch, rows in epochs.items():
        medians[epoch] = median_low(interval.step_s for interval in rows)
        pairs += [(interval, medians[epoch]) for interval in rows]
    scatter = median_low(abs(i.step_s - middle) / (middle or 1) for i, middle in pairs)
    ratio = 1 + max(TOLERANCE, SCATTER * scatter)

    def has_gap(interval: TimeInterval, middle: float) -> bool:
        return interval.step_s > ratio * middle + 2 * resolution_s / interval.steps

    gaps = [interval for interval, middle in pairs if has_gap(interval, middle)]
    short = [
        i for i, middle in pairs if i.seconds + resolution_s < SHORT * middle * i.steps
    ]
    steps = sum(interval.steps for interval, _ in pairs)
    most_gaps = len(epochs) + steps / STEPS_PER_GAP
    if len(gaps) > most_gaps or len(short) > len(pairs) / 10:
        times = [interval.step_s for interval, _ in pairs]
        raise _too_many_gaps(min(times), max(times))
    kept = {}
    for epoch, rows in epochs.items():
        kept[epoch] = [
            interval for interval in rows if not has_gap(interval, medians[epoch])
        ]
    return kept, gaps


def _check_slowdown(
    step_s: float, intervals: Sequence[TimeInterval], resolution_s: float
) -> None:
    """Refuse a time of a step that the fastest intervals of the run contradict."""
    fastest = sorted((i.seconds + resolution_s) / i.steps for i in intervals)
    if step_s > SLOWDOWN * fastest[len(fastest) // 10]:
        raise _too_many_gaps(fastest[0], step_s)


def _too_many_gaps(least_s: float, most_s: float) -> FieldError:
    return FieldError(
        f"its steps take from {least_s:.3g} to {most_s:.3g} s: pauses cannot be told from "
        "training; give the seconds of each epoch (run,epoch,seconds)"
    )


def _in_seconds(stamps: Sequence[Stamp], notes: list[str]) -> list[Stamp]:
    """Return stamps in seconds, without epochs if these are in fractions, as Trainer of HF has."""
    largest = max(abs(stamp.at_s) for stamp in stamps)
    unit_s, name = next(
        ((s, name) for least, s, name in _UNITS if largest > least), (1.0, "")
    )
    if name and min(abs(stamp.at_s) for stamp in stamps) < largest / 2:
        raise FieldError(
            f"some of its time stamps are in {name}, others are not: give one unit"
        )
    if name:
        notes.append(f"time stamps are in {name}")
    has_epochs = all(stamp.epoch is not None and stamp.epoch % 1 == 0 for stamp in stamps)
    resolution_s = _resolution(stamps) * unit_s
    in_seconds = []
    for stamp in stamps:
        epoch = stamp.epoch if has_epochs else None
        at_s = stamp.at_s * unit_s
        in_seconds.append(
            stamp._replace(at_s=at_s, resolution_s=resolution_s, epoch=epoch)
        )
    return in_seconds


def _resolution(stamps: Sequence[Stamp]) -> float:
    """Return the last digit of time stamps, which is zero in none of them."""
    written = min(stamp.resolution_s for stamp in stamps)
    for unit in (60.0, 1.0):
        if all(stamp.at_s % unit == 0 for stamp in stamps):
            return max(written, unit)
    return written


def _check_order(stamps: Sequence[Stamp]) -> None:
    """Check that each step is given once, and is not before the one before."""
    for stamp, following in pairwise(stamps):
        lines = f"lines {stamp.line} and {following.line}"
        if (stamp.epoch, stamp.step) == (following.epoch, following.step):
            hint = _EPOCHS_AGAIN if stamp.epoch is None else ""
            raise FieldError(
                f"step {stamp.step} is given twice, in {lines}: {SECOND_RUN}{hint}"
            )
        if following.at_s < stamp.at_s:
            raise FieldError(
                f"time goes back from step {stamp.step} to step {following.step}, in {lines}: "
                f"{SECOND_RUN}"
            )


def _iterations(
    epochs: Sequence[Sequence[Stamp]], given_iterations: int | None, reason: str
) -> int:
    """Return the iterations of an epoch: as given, else as the steps of whole epochs say.

    An epoch has at least the steps from its first row to its last. If another one follows, and one
    is before it or it begins with step 0 or 1, less than one interval is missing at each end.
    """
    has_epochs = epochs[0][0].epoch is not None
    counts_on = all(a[-1].step < b[0].step for a, b in pairwise(epochs))
    spans = [members[-1].step - members[0].step for members in epochs]
    whole = [n for n in range(len(epochs) - 1) if n or epochs[0][0].step in (0, 1)]
    every = max((i.steps for members in epochs for i in _intervals(members)), default=0)
    least = max(spans) + 1
    most = min((spans[n] + 2 * every - 1 for n in whole), default=None) if every else None
    if given_iterations is None:
        if most is None:
            raise FieldError(
                "the iterations of an epoch are not in the file: give images= or iterations=, or a "
                "column iterations"
            )
        if least != most:
            raise FieldError(
                f"its rows every {counted(every, 'step')} leave {min(least, most)} to "
                f"{max(least, most)} iterations per epoch: give images= or iterations=, or a "
                "column iterations"
            )
        return least
    is_too_large = most is not None and given_iterations > most + every
    if has_epochs and (given_iterations < least or is_too_large):
        counts = f"{least} or more" if most is None else f"{least} to {most}"
        if least == most:
            counts = str(least)
        raise FieldError(
            f"its epochs have {counts} steps, but {reason} {given_iterations}: "
            "correct that, or the column step, which must count iterations"
        )
    if has_epochs and counts_on:
        _check_epochs(epochs, given_iterations, every, reason)
    return given_iterations


def _check_fractions(stamps: Sequence[Stamp], iterations: int, reason: str) -> None:
    """Check the iterations by epochs in fractions, as Hugging Face's Trainer logs them."""
    is_fraction = any((stamp.epoch or 0) % 1 for stamp in stamps)
    said_by_rows = [
        s.step / s.epoch for s in stamps if s.epoch and s.epoch >= LEAST_FRACTION
    ]
    if not (is_fraction and said_by_rows):
        return
    said = median(said_by_rows)
    if abs(said - iterations) > max(2, FRACTION_ERROR * iterations):
        raise FieldError(
            f"its epochs have {said:.0f} steps, but {reason} {iterations}: correct that, or the "
            "column step, which must count iterations"
        )


def _check_epochs(
    epochs: Sequence[Sequence[Stamp]], iterations: int, every: int, reason: str
) -> None:
    """Check the iterations by the first rows of the first and the last epoch."""
    number = int((epochs[-1][0].epoch or 0) - (epochs[0][0].epoch or 0))
    steps = epochs[-1][0].step - epochs[0][0].step
    if abs(steps - number * iterations) > max(every, 1):
        raise FieldError(
            f"{counted(number, 'epoch')} have {steps} steps, but {reason} {iterations} each: "
            "correct that, or the column step, which must count iterations"
        )


def _intervals(stamps: Sequence[Stamp]) -> list[TimeInterval]:
    """Return the intervals between the rows of an epoch."""
    return [
        TimeInterval(after.at_s - before.at_s, after.step - before.step, after.step)
        for before, after in pairwise(stamps)
    ]


def _gaps_text(gaps: Sequence[TimeInterval], step_s: float) -> str:
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
