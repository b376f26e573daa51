"""The time of an epoch from the history of a run: rows of epochs, or time stamps of steps."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import chain, pairwise
from statistics import median, median_low
from typing import NamedTuple

from hpml_jobs.core.text import counted, duration_text
from hpml_jobs.extras.exchange.csv_rows import FieldError
from hpml_jobs.results.rows import by_key

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

    @property
    def epoch_number(self) -> float:
        """The epoch; 0 in a run whose rows name none."""
        return self.epoch or 0


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
    _check_whole_epochs(ordered)
    if len(ordered) < 2:
        raise FieldError("one epoch is the warm-up: add the seconds of a second one")
    seconds = [row[2] for row in ordered]
    if _are_since_start(seconds):
        raise FieldError(
            f"its seconds rise from {seconds[0]:g} to {seconds[-1]:g}, as seconds since the start "
            "do: give those of each epoch, the difference to the epoch before"
        )
    notes: list[str] = []
    return RunTime(
        _median({epoch: s for _, epoch, s in ordered[1:]}, notes), False, notes
    )


def _check_whole_epochs(ordered: Sequence[tuple[int, float, float]]) -> None:
    """Check that the rows are those of whole epochs, each given once."""
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
    in_seconds = _in_seconds(stamps, notes)
    ordered = sorted(in_seconds, key=lambda stamp: (stamp.epoch_number, stamp.step))
    _check_order(ordered)
    epochs = _by_epoch(ordered)
    iterations = _iterations(list(epochs.values()), given_iterations, reason)
    _check_fractions(stamps, iterations, reason)
    if ordered[0].epoch is None:
        epochs = _by_epoch(_with_epochs(ordered, iterations))
    by_epoch = _intervals_by_epoch(epochs)
    first = min(epochs)
    later = {epoch: rows for epoch, rows in by_epoch.items() if epoch != first}
    used = later or by_epoch
    resolution_s = ordered[0].resolution_s
    kept, gaps = _without_gaps(used, resolution_s)
    _check_resolution(kept.values(), resolution_s, notes)
    step_s = _median(
        {epoch: _total(rows).step_s for epoch, rows in kept.items()}, notes
    )
    intervals = list(chain(*by_epoch.values()))
    _check_slowdown(step_s, intervals, resolution_s)
    notes += _gap_notes(gaps, step_s)
    used_steps = [interval.steps for interval in chain(*used.values())]
    notes += _doubts(len(used_steps), step_s, _total(intervals).steps, iterations)
    return RunTime(step_s * iterations, not later, notes, iterations, max(used_steps))


def _intervals_by_epoch(
    epochs: Mapping[float, Sequence[Stamp]],
) -> dict[float, list[TimeInterval]]:
    """Return the intervals of each epoch that has two rows or more."""
    intervals = {epoch: _intervals(members) for epoch, members in epochs.items()}
    by_epoch = {epoch: rows for epoch, rows in intervals.items() if rows}
    if not by_epoch:
        raise FieldError("no epoch has two rows: give more rows, or run,epoch,seconds")
    return by_epoch


def _total(intervals: Sequence[TimeInterval]) -> TimeInterval:
    """Return the seconds and steps of several intervals together."""
    seconds = sum(interval.seconds for interval in intervals)
    steps = sum(interval.steps for interval in intervals)
    return TimeInterval(seconds, steps, intervals[-1].end)


def _doubts(
    intervals: int, step_s: float, steps: int, iterations: int
) -> Iterator[str]:
    """Yield why the time of a step, found in so many intervals, may be wrong.

    `steps` are those of all epochs of the run, `iterations` those of a whole one.
    """
    if intervals < FEW_INTERVALS:
        yield (
            f"its time is from {counted(intervals, 'interval')} between rows, where a pause would "
            "not be noticed"
        )
    if not USUAL_STEP_S[0] <= step_s <= USUAL_STEP_S[1]:
        yield f"a step takes {step_s:.3g} s: are its time stamps in seconds?"
    if steps < iterations / 2:
        yield (
            f"its {counted(steps, 'step')} are a part of an epoch of {iterations} iterations: if "
            "they are epochs, give run,epoch,seconds"
        )


def _by_epoch(stamps: Iterable[Stamp]) -> dict[float, list[Stamp]]:
    return by_key((stamp.epoch_number, stamp) for stamp in stamps)


def _with_epochs(stamps: Sequence[Stamp], iterations: int) -> list[Stamp]:
    """Return the stamps with their epochs by the number of the step, which counts from 0 or 1."""
    begin = min(1, stamps[0].step)
    return [s._replace(epoch=(s.step - begin) // iterations) for s in stamps]


def _check_resolution(
    epochs: Iterable[Sequence[TimeInterval]], resolution_s: float, notes: list[str]
) -> None:
    """Refuse time stamps whose last digit is too coarse, and note where it matters."""
    shortest = min(_total(intervals).seconds for intervals in epochs)
    if shortest < LEAST_RESOLUTIONS * resolution_s:
        raise FieldError(
            f"{shortest:g} s between its rows is not enough where the last digit of time stamps is "
            f"{resolution_s:g} s: give more rows or digits, or run,epoch,seconds"
        )
    if (error := resolution_s / shortest) > 0.02:
        notes.append(f"its time stamps are coarse: a step is known to {error:.0%}")


class _ComparedInterval(NamedTuple):
    """An interval, and the median of the steps' times in its epoch."""

    interval: TimeInterval
    median_s: float

    @property
    def deviation(self) -> float:
        """The difference of its steps' time from the median, as a share of this."""
        return abs(self.interval.step_s - self.median_s) / (self.median_s or 1)

    def has_gap(self, ratio: float, resolution_s: float) -> bool:
        """Return whether it is longer than so many medians, beyond the last digit of times."""
        error_s = 2 * resolution_s / self.interval.steps
        return self.interval.step_s > ratio * self.median_s + error_s

    def is_short(self, resolution_s: float) -> bool:
        """Return whether it is much shorter than others of its epoch."""
        longest_s = self.interval.seconds + resolution_s
        return longest_s < SHORT * self.median_s * self.interval.steps


def _compared(intervals: Sequence[TimeInterval]) -> list[_ComparedInterval]:
    median_s = median_low(interval.step_s for interval in intervals)
    return [_ComparedInterval(interval, median_s) for interval in intervals]


def _without_gaps(
    epochs: Mapping[float, Sequence[TimeInterval]], resolution_s: float
) -> tuple[dict[float, list[TimeInterval]], list[TimeInterval]]:
    """Return the intervals of each epoch without those that have a gap, and these.

    An interval has one if its steps are longer than the median of its epoch by more than the
    intervals of all epochs scatter.

    Raises:
        FieldError: there are too many, or some are much shorter.
    """
    compared = {epoch: _compared(intervals) for epoch, intervals in epochs.items()}
    members = list(chain(*compared.values()))
    scatter = median_low(member.deviation for member in members)
    ratio = 1 + max(TOLERANCE, SCATTER * scatter)
    gaps = [m.interval for m in members if m.has_gap(ratio, resolution_s)]
    short = [member for member in members if member.is_short(resolution_s)]
    most_gaps = (
        len(epochs) + _total(list(chain(*epochs.values()))).steps / STEPS_PER_GAP
    )
    if len(gaps) > most_gaps or len(short) > len(members) / 10:
        times = [member.interval.step_s for member in members]
        raise _too_many_gaps(min(times), max(times))
    kept = {}
    for epoch, rows in compared.items():
        kept[epoch] = [m.interval for m in rows if not m.has_gap(ratio, resolution_s)]
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
    unit_s = _unit_s(stamps, notes)
    resolution_s = _resolution(stamps) * unit_s
    if any(stamp.epoch is None or stamp.epoch % 1 for stamp in stamps):
        stamps = [stamp._replace(epoch=None) for stamp in stamps]
    return [
        stamp._replace(at_s=stamp.at_s * unit_s, resolution_s=resolution_s)
        for stamp in stamps
    ]


def _unit_s(stamps: Sequence[Stamp], notes: list[str]) -> float:
    """Return the seconds of the unit that time stamps are in; note one that is not the second."""
    sizes = [abs(stamp.at_s) for stamp in stamps]
    for least, unit_s, name in _UNITS:
        if max(sizes) > least:
            if min(sizes) < max(sizes) / 2:
                raise FieldError(
                    f"some of its time stamps are in {name}, others are not: give one unit"
                )
            notes.append(f"time stamps are in {name}")
            return unit_s
    return 1.0


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


class _EpochSteps(NamedTuple):
    """The least and the most iterations that the rows of a run's epochs leave to an epoch.

    An epoch has at least the steps from its first row to its last. If another one follows, and one
    is before it or it begins with step 0 or 1, less than one interval is missing at each end; None
    if there is no such epoch. `every` is the most steps between two rows.
    """

    least: int
    most: int | None
    every: int

    @classmethod
    def of(cls, epochs: Sequence[Sequence[Stamp]]) -> "_EpochSteps":
        """Return what the rows of these epochs leave."""
        spans = [members[-1].step - members[0].step for members in epochs]
        intervals = chain(*map(_intervals, epochs))
        every = max((interval.steps for interval in intervals), default=0)
        whole = spans[:-1]
        if epochs[0][0].step > 1:
            whole = whole[1:]
        most = None
        if whole and every:
            most = min(whole) + 2 * every - 1
        return cls(max(spans) + 1, most, every)

    def counted(self) -> int:
        """Return the iterations, if the rows leave one number."""
        if self.most is None:
            raise FieldError(
                "the iterations of an epoch are not in the file: give images= or iterations=, or a "
                "column iterations"
            )
        if self.least != self.most:
            first, last = sorted((self.least, self.most))
            raise FieldError(
                f"its rows every {counted(self.every, 'step')} leave {first} to {last} iterations "
                "per epoch: give images= or iterations=, or a column iterations"
            )
        return self.least

    def check(self, iterations: int, reason: str) -> None:
        """Refuse given iterations that the rows contradict."""
        is_too_large = self.most is not None and iterations > self.most + self.every
        if iterations < self.least or is_too_large:
            raise FieldError(
                f"its epochs have {self._text} steps, but {reason} {iterations}: "
                "correct that, or the column step, which must count iterations"
            )

    @property
    def _text(self) -> str:
        if self.most is None:
            return f"{self.least} or more"
        return (
            str(self.least)
            if self.least == self.most
            else f"{self.least} to {self.most}"
        )


def _iterations(
    epochs: Sequence[Sequence[Stamp]], given_iterations: int | None, reason: str
) -> int:
    """Return the iterations of an epoch: as given, else as the steps of whole epochs say."""
    steps = _EpochSteps.of(epochs)
    if given_iterations is None:
        return steps.counted()
    if epochs[0][0].epoch is not None:
        steps.check(given_iterations, reason)
        _check_first_rows(epochs, given_iterations, steps.every, reason)
    return given_iterations


def _check_fractions(stamps: Sequence[Stamp], iterations: int, reason: str) -> None:
    """Check the iterations by epochs in fractions, as Hugging Face's Trainer logs them."""
    placed = [(stamp.step, stamp.epoch) for stamp in stamps if stamp.epoch]
    has_fractions = any(epoch % 1 for _, epoch in placed)
    said_by_rows = [step / epoch for step, epoch in placed if epoch >= LEAST_FRACTION]
    if not has_fractions or not said_by_rows:
        return
    said = median(said_by_rows)
    if abs(said - iterations) > max(2, FRACTION_ERROR * iterations):
        raise FieldError(
            f"its epochs have {said:.0f} steps, but {reason} {iterations}: correct that, or the "
            "column step, which must count iterations"
        )


def _check_first_rows(
    epochs: Sequence[Sequence[Stamp]], iterations: int, every: int, reason: str
) -> None:
    """Check the iterations by the first rows of the first and the last epoch.

    Where steps begin again in each epoch, these rows say nothing.
    """
    if any(after[0].step <= before[-1].step for before, after in pairwise(epochs)):
        return
    first, last = epochs[0][0], epochs[-1][0]
    number = int(last.epoch_number - first.epoch_number)
    steps = last.step - first.step
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


def _gap_notes(gaps: Sequence[TimeInterval], step_s: float) -> Iterator[str]:
    """Yield how long the gaps were without the steps in them, and where the longest was."""
    if not gaps:
        return
    seconds = [gap.seconds - gap.steps * step_s for gap in gaps]
    longest = max(seconds)
    place = gaps[seconds.index(longest)].end
    if len(gaps) == 1:
        yield f"1 gap of {_text(longest)} at step {place} left out"
    else:
        yield (
            f"{len(gaps)} gaps of {_text(sum(seconds))} in all left out, the longest "
            f"{_text(longest)} at step {place}"
        )


def _text(seconds: float) -> str:
    return duration_text(seconds) if seconds >= 60 else f"{seconds:.3g} s"
