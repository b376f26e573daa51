"""Why N GPUs are not N times as fast: what each cause takes of the ideal speedup."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from statistics import median
from typing import NamedTuple

from hpml_jobs.checks.result import Affected, Level
from hpml_jobs.core import formulas
from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.place import Place
from hpml_jobs.core.record import Record, least_waiting
from hpml_jobs.core.statistics import CONFIDENCE, bootstrap, percentiles
from hpml_jobs.core.text import counted, listed
from hpml_jobs.report.frame.captions import mark, unit, units
from hpml_jobs.report.frame.figures import Figures
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import ratio, significant
from hpml_jobs.report.frame.rows import Row

NEARLY_IDEAL = 0.95
"""The share of the ideal speedup from which there is nothing to explain."""

REST, LEAST = 0.05, 0.02
"""Parts that together are at most `REST` of the ideal speedup are the rest; a single one of them
that is more than `LEAST` is named.
"""


class Cause(StrEnum):
    """What takes a part of the ideal speedup."""

    EXCHANGE = "exchange"
    LOADER = "loader"
    WAITING = "waiting"
    CPUS = "CPUs"
    UNEXPLAINED = "unexplained"


EPOCH, COMPUTE = "epoch", "compute"

Seconds = Mapping[str, float]
"""The known seconds of the timed epoch of one run, or medians: `epoch`, `compute` and by cause."""

Parts = dict[Cause, float]
"""What each known cause takes of the ideal speedup, and what is unexplained."""


class Part(NamedTuple):
    """A part of the ideal speedup; it has an interval if both cells have repeats."""

    value: float
    low: float | None = None
    high: float | None = None


class Gap(NamedTuple):
    """The speedup of a row, and the parts that are missing to the ideal one.

    `late` is the rank that the others wait for. `is_decided`: the largest part is the largest in
    95 % of the resamples, or there are no repeats. Checks may doubt the speedup, or its parts too.
    `has_failed`: the speedup cannot be used. `has_waiting`: the exchange has the waiting in it.
    """

    speedup: float
    parts: Mapping[Cause, Part]
    late: str
    is_decided: bool
    is_doubtful: bool
    doubts_parts: bool
    has_failed: bool
    has_waiting: bool

    @property
    def missing(self) -> float:
        """The sum of the parts."""
        return sum(part.value for part in self.parts.values())

    @property
    def ideal(self) -> float:
        """The ideal speedup."""
        return self.speedup + self.missing

    @property
    def is_split(self) -> bool:
        """Whether exchange is known, and with it what nothing explains."""
        return Cause.EXCHANGE in self.parts


def gaps(group: ConditionGroup) -> dict[Place, Gap]:
    """Return the gap of every row with more GPUs than its reference, where a part is known."""
    pairs = ((row, group.reference(row)) for row in group.timed)
    return {
        row.place: gap
        for row, reference in pairs
        if reference and row.gpus > reference.gpus
        if (gap := _gap(group, row, reference))
    }


def _gap(group: ConditionGroup, row: Row, reference: Row) -> Gap | None:
    ideal = row.gpus / reference.gpus
    of_row, of_reference = ([seconds_of(of, run) for run in of.runs] for of in (row, reference))
    values = parts(medians_of(of_row), medians_of(of_reference), ideal)
    if [*values] == [Cause.UNEXPLAINED]:
        return None
    runs, largest = min(len(of_row), len(of_reference)), max(values, key=values.__getitem__)
    drawn = _resampled(of_row, of_reference, ideal) if runs > 1 else []
    agreeing = sum(max(each, key=each.__getitem__) is largest for each in drawn)
    ends = {
        cause: percentiles([each[cause] for each in drawn if cause in each], runs)[:2]
        for cause in (values if drawn else ())
    }
    is_doubtful = group.doubts_ratio(row)
    return Gap(
        speedup=formulas.speedup(reference.epochs.median, row.epochs.median),
        parts={cause: Part(value, *ends.get(cause, ())) for cause, value in values.items()},
        late=_late(row.figures, group.counted_records(row, Affected.SPLIT)),
        is_decided=agreeing >= CONFIDENCE * len(drawn),
        is_doubtful=is_doubtful,
        doubts_parts=is_doubtful or group.doubts(row, Affected.SPLIT),
        has_failed=Level.FAIL in (group.worst(each, Affected.TIME) for each in (row, reference)),
        has_waiting=Cause.EXCHANGE in values and row.figures.others_exchange_s is None,
    )


def _resampled(of: Sequence[Seconds], reference: Sequence[Seconds], ideal: float) -> list[Parts]:
    """Return the parts of resamples of both cells' runs."""

    @cache
    def medians(numbers: tuple[int, ...], *, of_reference: bool) -> Seconds:
        return medians_of([(reference if of_reference else of)[number] for number in numbers])

    def estimate(numbers: list[int], others: list[int]) -> Parts:
        one = medians(tuple(sorted(numbers)), of_reference=False)
        return parts(one, medians(tuple(sorted(others)), of_reference=True), ideal)

    return bootstrap(range(len(of)), range(len(reference)), estimate)


def medians_of(runs: Sequence[Seconds]) -> Seconds:
    """Return the median of each time over the runs that have it."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: median(run[name] for run in runs if name in run) for name in names}


def seconds_of(row: Row, figures: Figures) -> Seconds:
    """Return the known seconds of a run.

    What is measured in the instrumented epoch is its share of the timed one. The exchange has
    packing by hand in it; without phases it is what the epoch without exchange saves, waiting too.
    """
    instrumented_s = {
        Cause.EXCHANGE: figures.others_exchange_s,
        Cause.WAITING: figures.others_waiting_s,
        COMPUTE: figures.others_compute_s,
    }
    known_s: dict[str, float | None] = {
        EPOCH: figures.epoch_s,
        Cause.LOADER: figures.others_stall_s,
        Cause.CPUS: figures.others_run_queue_s,
    }
    if figures.overhead is not None:
        of_timed = 1 / (1 + figures.overhead)
        known_s |= {name: s and s * of_timed for name, s in instrumented_s.items()}
    else:
        known_s[Cause.EXCHANGE] = figures.comm_cost_s
    if row.gpus == 1:
        known_s |= {Cause.EXCHANGE: 0.0, Cause.WAITING: 0.0}
    return {name: s for name, s in known_s.items() if s is not None}


def parts(of: Seconds, reference: Seconds, ideal: float) -> Parts:
    """Return what each known cause takes of the ideal speedup; they sum to ideal - speedup.

    Only what the reference does not spend as well is lost, and waiting for a CPU only where it
    makes computation longer: a rank that waits for others needs no CPU meanwhile.
    """
    beyond_s = {
        name: formulas.beyond_ideal_s(of[name], reference[name], ideal)
        for name in of
        if name in reference
    }
    whole_s, longer_s = beyond_s.pop(EPOCH), beyond_s.pop(COMPUTE, None)
    if Cause.CPUS in beyond_s:
        queued_s = beyond_s.pop(Cause.CPUS)
        beyond_s |= {} if longer_s is None else {Cause.CPUS: min(queued_s, longer_s)}
    if Cause.WAITING in beyond_s and longer_s is not None:
        # What the late rank does, the reference does as well: the others compute less instead.
        beyond_s[Cause.WAITING] += min(0.0, longer_s)
    lost_s = {cause: max(0.0, beyond_s[cause]) for cause in Cause if cause in beyond_s}
    lost_s[Cause.UNEXPLAINED] = whole_s - sum(lost_s.values())
    return {cause: formulas.lost_speedup(s, of[EPOCH], ideal) for cause, s in lost_s.items()}


def _late(figures: Figures, records: Sequence[Record]) -> str:
    """Return the rank that the others wait for, or that they wait for each other."""
    number = least_waiting(records)
    if number is None or figures.waiting_s is None or figures.others_waiting_s is None:
        return ""
    if figures.waiting_s > figures.others_waiting_s / 2:
        return "each other"
    hosts = {rank.host for record in records if (rank := record.rank_of(number))}
    return f"rank {number} on {hosts.pop()}" if len(hosts) == 1 else f"rank {number}"


WORDS: dict[str, tuple[str, str]] = {
    Cause.EXCHANGE: ("exchange", "without exchange"),
    Cause.LOADER: ("the loader", "with an ideal loader"),
    Cause.WAITING: ("waiting for {late}", "without waiting"),
    Cause.CPUS: ("waiting for CPUs", "with enough CPUs"),
}
"""Each known cause in a sentence, and the speedup without it."""


def sentence(group: ConditionGroup, row: Row, gap: Gap) -> str:
    """Return the speedup, what is missing and what takes it, and the speedup without that."""
    names = unit(group.device), units(group.device)
    reference = counted(round(row.gpus / gap.ideal), *names)
    text = (
        f"{counted(row.gpus, *names)} are "
        f"{mark(ratio(gap.speedup), is_doubtful=gap.is_doubtful)} times as fast as {reference} at "
        f"batch {row.batch_per_gpu}"
    )
    if gap.speedup >= NEARLY_IDEAL * gap.ideal:
        return f"{text}, of {gap.ideal:.3g} possible: nothing to explain."
    named = _named(gap)
    clauses = list(_clauses(gap, named))
    ends = [f"of the missing {digits(gap.missing)}, {listed(clauses)}"] if clauses else []
    if not gap.is_split:
        known = sum(part for cause, part in named.items() if cause in WORDS)
        which = f"the {'other' if clauses else 'missing'} {digits(gap.missing - known)}"
        is_lab = group.a_cell.protocol is Protocol.LAB
        ends.append(f"protocol=full splits {which}" if is_lab else f"{which} is not split")
    elif (unexplained := named.get(Cause.UNEXPLAINED, 0.0)) < 0:
        ends.append(f"computation, faster than on {reference}, gives {digits(-unexplained)} back")
    would = [
        f"{ratio(formulas.speedup_without(gap.speedup, part, gap.ideal))} {WORDS[cause][1]}"
        for cause, part in named.items()
        if cause in WORDS
    ]
    ends += [f"it would be {', '.join(would[:2])}"] if would else []
    ends += [] if gap.is_decided else ["too few runs to tell which part is largest"]
    return f"{text}, not {gap.ideal:.3g}: {'; '.join(ends)}."


def _named(gap: Gap) -> dict[str, float]:
    """Return the parts that a sentence names, the largest first, then the rest: parts that are
    small together. What is unexplained is last, or first where it is the largest.
    """
    values = {cause: part.value for cause, part in gap.parts.items()}
    small, left = set(), REST * gap.ideal
    for cause in sorted(values, key=lambda cause: abs(values[cause])):
        left -= abs(values[cause])
        small |= {cause} if left >= 0 else set()
    some = {cause for cause in small if abs(values[cause]) > LEAST * gap.ideal}
    small -= some if len(some) == 1 else set()
    large = [cause for cause in sorted(values, key=lambda c: -values[c]) if cause not in small]
    known: dict[str, float] = {cause: values[cause] for cause in large if cause in WORDS}
    known["rest"] = sum(values[cause] for cause in small)
    others = {cause: values[cause] for cause in large if cause not in WORDS}
    return others | known if large[0] in others else known | others


def _clauses(gap: Gap, named: Mapping[str, float]) -> Iterator[str]:
    """Yield what takes how much of the ideal speedup."""
    verb = "takes "
    for cause, value in named.items():
        text = mark(digits(value), is_doubtful=gap.doubts_parts)
        if cause in WORDS:
            waits = " with waiting" if cause == Cause.EXCHANGE and gap.has_waiting else ""
            yield f"{WORDS[cause][0].format(late=gap.late)}{waits} {verb}{text}"
            verb = ""
        elif gap.is_split and value > 0 and digits(value) != "0":
            where = "" if gap.has_waiting else " (see the table Phases)"
            yield f"smaller causes {text}" if cause == "rest" else f"{text} is unexplained{where}"


def digits(value: float) -> str:
    """Return a part with two decimals at most."""
    return significant(value, 3, most_decimals=2)
