"""Which cell to ask for: the fastest, the cheapest, and the largest that is efficient enough.

Cells of one group of equal conditions are compared by their epochs. A cell costs the GPUs that it
is charged for, times its seconds.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from statistics import fmean
from typing import NamedTuple

import msgspec

from hpml_jobs.core import formulas
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import Affected, Level
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.conditions import CPU_COUNT
from hpml_jobs.core.errors import UsageError, refuse_not_positive
from hpml_jobs.core.noise import known_interval
from hpml_jobs.core.place import Place
from hpml_jobs.core.statistics import Interval, ratio_interval
from hpml_jobs.core.strategies import BASELINE, Device, Strategy
from hpml_jobs.core.value import Value
from hpml_jobs.report.frame.captions import cell_label, cell_words
from hpml_jobs.results.checks.disturbance import DISTURBED
from hpml_jobs.results.decision import (
    LEAST_GAP,
    Decision,
    compare,
    runs_to_exclude,
    scatter,
)
from hpml_jobs.results.groups import Charged, ChargedRow, ConditionGroup, charged_gpus
from hpml_jobs.results.rows import Row

MIN_EFFICIENCY = 0.7
"""Least efficiency of a cell to ask for, unless the user says otherwise."""

USUAL = (BASELINE, Strategy.DDP)
"""The strategies that are preferred among cells that the runs do not tell apart."""


class Wish(Value, frozen=True, kw_only=True):
    """The least efficiency of a cell, and what a training of `epochs` may cost in GPU-hours."""

    min_efficiency: float = MIN_EFFICIENCY
    epochs: int | None = None
    gpu_hours: float | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that are not above zero, and a limit without the number of epochs."""
        for key in self.__struct_fields__:
            refuse_not_positive(key, getattr(self, key))
        if self.has_limit and self.epochs is None:
            raise UsageError("gpu_hours= is of a whole training: add epochs=N")

    @property
    def has_limit(self) -> bool:
        """Whether the cost of the training is limited."""
        return self.gpu_hours is not None

    @property
    def counted_epochs(self) -> int:
        """The epochs whose cost and time the limits are of."""
        return self.epochs or 1


class Exclusion(StrEnum):
    """Why a cell is not the one to ask for."""

    FAILED_CHECK = "a data-quality check failed"  # nor the fastest, nor the cheapest
    OVER_BUDGET = "over the budget"
    INEFFICIENT = "below the least efficiency"


class Candidate(ChargedRow, frozen=True, kw_only=True):
    """A measured cell with what an epoch of it takes and costs: medians over its runs.

    `efficiency` is against the best cell of the smallest size. `doubtful`: a check of its time
    warns. `is_disturbed`: it fails, because outside causes made too much of the time.
    """

    efficiency: float
    exclusion: Exclusion | None = None
    doubtful: bool = False
    is_disturbed: bool = False

    @property
    def label(self) -> str:
        """Its name in a table: `ddp 2-GPU b512`."""
        return cell_label(self.row.place, self.device)

    @property
    def words(self) -> str:
        """Its name in a sentence: `2 GPUs, batch 512 (ddp)`."""
        return cell_words(self.row.place, self.device)

    @property
    def place_of_any_strategy(self) -> Place:
        """Its setup and batch without the strategy."""
        return self.row.place._replace(setup=self.row.setup._replace(strategy=BASELINE))

    @property
    def epochs_s(self) -> tuple[float, ...]:
        """Seconds of the timed epoch of every run that counts."""
        return self.row.epochs.runs


class Winner(NamedTuple):
    """A chosen cell. `instead_of` are not faster, and cost more or have the same size.

    `is_decided`: the runs decided every comparison; else medians were compared. `rivals` are those
    whose times are within the noise of the few runs.
    """

    candidate: Candidate
    instead_of: tuple[Candidate, ...] = ()
    is_decided: bool = True
    rivals: tuple[Candidate, ...] = ()

    @property
    def equals(self) -> tuple[Candidate, ...]:
        """The cells of its size that enough runs do not tell apart from it."""
        size = self.candidate.row.gpus
        same = (other for other in self.instead_of if other.row.gpus == size)
        return tuple(other for other in same if other not in self.rivals)


class SizeStep(NamedTuple):
    """From the fastest cell of one size to that of the next."""

    smaller: Candidate
    larger: Candidate

    @property
    def saved_s(self) -> float:
        """Seconds by which an epoch becomes shorter."""
        return self.smaller.epoch_s - self.larger.epoch_s

    @property
    def added_gpu_s(self) -> float:
        """GPU-seconds that an epoch costs more."""
        return self.larger.gpu_s - self.smaller.gpu_s


class Undecided(NamedTuple):
    """A cell to ask for, and the `rival` that may be the one: the runs do not tell which.

    `interval` is that of the efficiency of `candidate`, or, `by_time`, of how many times as fast
    as the rival it is. So many `runs` of each would tell, None: more than are suggested.
    """

    candidate: Candidate
    rival: Candidate
    interval: Interval
    runs: int | None
    by_time: bool = False


class Edge(NamedTuple):
    """A cell beyond the edge of the grid that may be better than the one to ask for, and why.

    `accumulate` is None where no cell accumulates batches.
    """

    gpus: int
    batch: int
    strategy: Strategy
    why: str
    accumulate: int | None = None


class Choice(Value, frozen=True, kw_only=True):
    """The measured cells of a group, the fastest first, and the chosen ones; None: none can be.

    `reference` is the fastest cell of the smallest size, which efficiencies are against, also with
    a failed check. `undecided` may change the size to ask for. Where the answer would rest on cells
    to `measure_again`, because they are too disturbed, no cell is chosen.
    """

    wish: Wish
    reference: Candidate
    candidates: tuple[Candidate, ...]
    fastest: Winner | None
    cheapest: Candidate | None
    ask: Winner | None
    undecided: Undecided | None
    measure_again: tuple[Candidate, ...]
    steps: tuple[SizeStep, ...]
    edges: tuple[Edge, ...]

    @property
    def device(self) -> Device:
        """The device that the cells compute on."""
        return self.reference.device

    @property
    def has_rivals(self) -> bool:
        """Whether there is more than one cell to choose from."""
        return len(self.candidates) > 1

    @property
    def winner(self) -> Candidate | None:
        """The cell to ask for."""
        return self.ask.candidate if self.ask else None

    @property
    def fastest_cell(self) -> Candidate | None:
        """The fastest cell."""
        return self.fastest.candidate if self.fastest else None

    @property
    def by_size(self) -> list[Candidate]:
        """The fastest cell of each size that no check calls wrong, by size."""
        return _by_size(_sound(self.candidates))

    def speedup(self, candidate: Candidate) -> float:
        """Return the speedup of a cell over the reference."""
        return formulas.speedup(self.reference.epoch_s, candidate.epoch_s)

    def doubts_ratio(self, candidate: Candidate) -> bool:
        """Return whether a check makes the time of a cell, or of the reference, doubtful."""
        return candidate.doubtful or self.reference.doubtful


def choose(
    group: ConditionGroup, wish: Wish, cluster: Cluster | None = None
) -> Choice | None:
    """Return the choice among the cells of a group; None if none has a number.

    `cluster` says which cells are charged whole nodes.
    """
    candidates = _candidates(group, wish, charged_gpus(group, cluster))
    if not candidates:
        return None
    sound = _sound(candidates)
    reference = _reference(candidates)
    again = _to_measure_again(candidates, sound, reference)
    ranked = [] if again else sound
    able = [candidate for candidate in ranked if candidate.exclusion is None]
    ask = _ask(able, wish)
    return Choice(
        wish=wish,
        reference=reference,
        candidates=tuple(candidates),
        fastest=_winner(ranked[0], ranked) if ranked else None,
        cheapest=min(ranked, key=lambda c: (c.gpu_s, c.epoch_s), default=None),
        ask=ask,
        undecided=_undecided(ask, sound, reference, wish) if ask else None,
        measure_again=again,
        steps=tuple(itertools.starmap(SizeStep, itertools.pairwise(_by_size(sound)))),
        edges=tuple(_edges(group, ask.candidate)) if ask else (),
    )


def _to_measure_again(
    candidates: Sequence[Candidate], sound: Sequence[Candidate], reference: Candidate
) -> tuple[Candidate, ...]:
    """Return the disturbed cells that the answer would rest on, or of whose size no other is."""
    sizes = {candidate.row.gpus for candidate in sound}
    disturbed = (candidate for candidate in candidates if candidate.is_disturbed)
    return tuple(c for c in disturbed if c is reference or c.row.gpus not in sizes)


def _candidates(group: ConditionGroup, wish: Wish, charged: Charged) -> list[Candidate]:
    """Return the measured cells, the fastest first."""
    measured = [
        Candidate(
            row=row,
            timing=row.timing,
            device=group.device,
            charged_gpus=charged(row.setup),
            efficiency=1.0,
            exclusion=Exclusion.FAILED_CHECK
            if group.worst(row, Affected.TIME) is Level.FAIL
            else None,
            doubtful=group.doubts(row, Affected.TIME),
            is_disturbed=group.fails(row, DISTURBED),
        )
        for row in group.timed
        if row.timing
    ]
    if not measured:
        return []
    reference = _reference(measured)
    candidates = (judged(candidate, reference, wish) for candidate in measured)
    return sorted(candidates, key=lambda c: (c.epoch_s, c.gpu_s))


def _reference(candidates: Sequence[Candidate]) -> Candidate:
    """Return the fastest cell of the smallest size, whatever a check says of it."""
    return min(candidates, key=lambda c: (c.row.gpus, c.epoch_s))


def judged(candidate: Candidate, reference: Candidate, wish: Wish) -> Candidate:
    """Return a candidate with its efficiency, and why it is not the one to ask for."""
    speedup = formulas.speedup(reference.epoch_s, candidate.epoch_s)
    efficiency = formulas.efficiency(speedup, candidate.row.gpus, reference.row.gpus)
    exclusion = _exclusion(candidate, efficiency, wish)
    judgement = {"efficiency": efficiency, "exclusion": exclusion}
    return msgspec.structs.replace(candidate, **judgement)


def _exclusion(candidate: Candidate, efficiency: float, wish: Wish) -> Exclusion | None:
    """Return why a cell is not the one to ask for: a failed check, else the first limit."""
    hours = wish.gpu_hours
    if candidate.exclusion is not None:
        return candidate.exclusion
    if hours is not None and wish.counted_epochs * candidate.gpu_hours > hours:
        return Exclusion.OVER_BUDGET
    if not wish.has_limit and efficiency < wish.min_efficiency:
        return Exclusion.INEFFICIENT
    return None


def _ask(able: Sequence[Candidate], wish: Wish) -> Winner | None:
    """Return the cell to ask for among those that nothing excludes, by their runs where it can."""
    if not able:
        return None
    return _winner(preferred(able, wish), able)


def preferred(able: Sequence[Candidate], wish: Wish) -> Candidate:
    """Return the cell to ask for by its medians, among one or more that nothing excludes.

    With a budget the fastest of them, else the fastest of those with the most GPUs.
    """
    if wish.has_limit:
        return min(able, key=lambda c: (c.epoch_s, c.gpu_s))
    return min(able, key=lambda c: (-c.row.gpus, c.epoch_s, c.gpu_s))


class Comparison(NamedTuple):
    """Whether a cell is faster than another; `is_told`: the runs tell. None: by medians alone."""

    other: Candidate
    is_faster: bool
    is_told: bool | None


def _winner(fastest: Candidate, candidates: Sequence[Candidate]) -> Winner:
    """Return the cheapest of the fastest cell and those as fast by their runs."""
    size = fastest.row.gpus
    rivals = [c for c in candidates if c.row.gpus == size or c.gpu_s < fastest.gpu_s]
    compared = [_compared(fastest, rival) for rival in rivals if rival is not fastest]
    equal = [fastest, *(c.other for c in compared if not c.is_faster)]
    near = [c.other for c in compared if c.is_told is False]
    by_medians = [c for c in compared if not c.is_told]
    winner = _cheapest_usual(equal)
    if winner in near:
        near = [fastest, *(other for other in near if other is not winner)]
    is_decided = all(
        c.is_told is None and c.is_faster and c.other.row.gpus == size
        for c in by_medians
    )
    instead_of = tuple(candidate for candidate in equal if candidate is not winner)
    return Winner(winner, instead_of, is_decided, tuple(near))


def _cheapest_usual(equal: Sequence[Candidate]) -> Candidate:
    """Return the cheapest cell, or of its size one with ddp or the plain loop, if there is one."""

    def by_cost(candidate: Candidate) -> tuple[float, float]:
        return candidate.gpu_s, candidate.epoch_s

    cheapest = min(equal, key=by_cost)
    same_size = [c for c in equal if c.row.gpus == cheapest.row.gpus]
    usual = [c for c in same_size if c.row.strategy in USUAL]
    return min(usual or same_size, key=by_cost)


def _compared(subject: Candidate, other: Candidate) -> Comparison:
    """Compare a cell with another by their runs.

    Too few runs tell what is outside of their own noise, else they are compared by their medians;
    None: their noise is not known. Between two strategies at one place they tell nothing if a check
    warns of their times.
    """
    decision = compare(subject.epochs_s, other.epochs_s).decision
    if decision is not Decision.TOO_FEW:
        return Comparison(other, decision is Decision.FASTER, is_told=True)
    least = 1 + LEAST_GAP
    interval = times_as_fast(subject, other)
    is_one_place = subject.place_of_any_strategy == other.place_of_any_strategy
    is_doubtful = is_one_place and (subject.doubtful or other.doubtful)
    is_faster = not is_doubtful and other.epoch_s > least * subject.epoch_s
    if interval is None:
        return Comparison(other, is_faster, is_told=None)
    if is_doubtful or interval.low <= least < interval.high:
        return Comparison(other, is_faster, is_told=False)
    return Comparison(other, interval.low > least, is_told=True)


def times_as_fast(subject: Candidate, other: Candidate) -> Interval | None:
    """Return the 95 % interval of the ratio of two times by the noise of the runs, if known."""
    ratio = other.epoch_s / subject.epoch_s
    return known_interval(ratio, subject.row.error, other.row.error)


def _undecided(
    ask: Winner, sound: Sequence[Candidate], reference: Candidate, wish: Wish
) -> Undecided | None:
    """Return what may be the cell to ask for instead: by the least efficiency, or by its time.

    The efficiency in question is that of the cell to ask for, or of the next larger size.
    """
    winner = ask.candidate
    if wish.has_limit:
        return _by_time(ask)
    by_size = _by_size(sound)
    gpus = winner.row.gpus
    smaller = [(winner, rival) for rival in by_size if rival.row.gpus < gpus][-1:]
    larger = [(rival, rival) for rival in by_size if rival.row.gpus > gpus][:1]
    for candidate, rival in smaller + larger:
        interval = _efficiency_interval(candidate, reference)
        if interval and interval.low < wish.min_efficiency <= interval.high:
            distance = candidate.efficiency / wish.min_efficiency
            runs = _deciding_runs(candidate, reference, distance)
            return Undecided(candidate, rival, interval, runs)
    return _by_time(ask)


def _by_time(ask: Winner) -> Undecided | None:
    """Return the cell whose time is the nearest within the noise, if there is one."""
    winner = ask.candidate
    if not ask.rivals:
        return None
    rival = min(ask.rivals, key=lambda rival: abs(rival.epoch_s - winner.epoch_s))
    interval = times_as_fast(winner, rival)
    if interval is None:
        return None
    ratio = rival.epoch_s / winner.epoch_s
    runs = _deciding_runs(winner, rival, max(ratio, 1 / ratio) / (1 + LEAST_GAP))
    return Undecided(winner, rival, interval, runs, by_time=True)


def _efficiency_interval(candidate: Candidate, reference: Candidate) -> Interval | None:
    """Return the interval of an efficiency, as in all tables; of single runs by their noise."""
    if candidate is reference:
        return None
    of_speedup = ratio_interval(reference.epochs_s, candidate.epochs_s)
    if of_speedup is None:
        errors = reference.row.error, candidate.row.error
        return known_interval(candidate.efficiency, *errors)
    return of_speedup.divided_by(candidate.row.gpus / reference.row.gpus)


def _deciding_runs(subject: Candidate, other: Candidate, ratio: float) -> int | None:
    """Return the runs of each that tell their ratio from a limit; None: more than are suggested.

    `ratio` is theirs divided by the limit. That of single runs is itself known to their noise, so
    it is taken to be as far from 1 at least.
    """
    runs_s = subject.epochs_s, other.epochs_s
    least = min(map(len, runs_s))
    runs = (*subject.row.runs, *other.row.runs)
    variances = [run.noise**2 for run in runs if run.noise is not None]
    noise_of_runs = math.sqrt(fmean(variances)) if variances else 0.0
    noise = max(scatter(*runs_s) or 0.0, noise_of_runs)
    distance = max(ratio, 1 / ratio) - 1
    if least == 1:
        distance = max(distance, math.sqrt(2) * noise)
    if not distance or not noise:
        return None
    needed = runs_to_exclude(distance, noise)
    return needed and max(needed, 1 + least)


def _sound(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the cells that no check calls wrong."""
    return [c for c in candidates if c.exclusion is not Exclusion.FAILED_CHECK]


def _by_size(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the first cell of each size, by size; `candidates` are the fastest first."""
    fastest: dict[int, Candidate] = {}
    for candidate in candidates:
        fastest.setdefault(candidate.row.gpus, candidate)
    return [fastest[gpus] for gpus in sorted(fastest)]


def _edges(group: ConditionGroup, winner: Candidate) -> Iterator[Edge]:
    """Yield the cells beyond the edges of the grid on which the cell to ask for lies."""
    row = winner.row
    strategy = _strategy_beyond(group, winner.row)
    alike = (row.strategy, strategy, BASELINE)
    rows = [other for other in group.rows if other.strategy in alike]
    accumulates = any(other.accumulate > 1 for other in group.rows)
    edge = Edge(
        2 * row.gpus,
        row.batch_per_gpu,
        strategy,
        f"{row.gpus} is the most measured",
        row.accumulate if accumulates else None,
    )
    is_largest = row.gpus == max(other.gpus for other in rows)
    if is_largest and _fits(group, edge) and not _oversubscribes(group, row, edge.gpus):
        yield edge
    same_size = [other for other in rows if other.gpus == row.gpus]
    edge = _with_larger_batch(edge._replace(gpus=row.gpus), same_size)
    takes_batch = group.a_cell.script is None or group.a_cell.script.takes_batch
    if edge.batch > row.batch_per_gpu and takes_batch and _fits(group, edge):
        yield edge


def _strategy_beyond(group: ConditionGroup, row: Row) -> Strategy:
    """Return the strategy of more GPUs: of a baseline ddp, or that of the same script."""
    if not row.is_baseline:
        return row.strategy
    if group.a_cell.script is None:
        return Strategy.DDP
    others = (other.strategy for other in group.rows if not other.is_baseline)
    return next(others, Strategy.DDP)


def _with_larger_batch(edge: Edge, same_size: Sequence[Row]) -> Edge:
    """Return the edge at the batch after the largest; unchanged if memory or the grid ends it."""
    batches = sorted({other.batch_per_gpu for other in same_size})
    has_oom = any(other.outcome is Outcome.OOM for other in same_size)
    if edge.batch < batches[-1] or has_oom:
        return edge
    if len(batches) == 1:
        why = f"{edge.batch} is the only batch measured"
        return edge._replace(batch=2 * edge.batch, why=why)
    batch = edge.batch * max(2, edge.batch // batches[-2])
    return edge._replace(batch=batch, why=f"{edge.batch} is the largest batch measured")


def _fits(group: ConditionGroup, edge: Edge) -> bool:
    """Return whether the samples of an epoch suffice for one global batch."""
    samples = group.a_cell.workload.images
    return samples is None or edge.gpus * edge.batch <= samples


def _oversubscribes(group: ConditionGroup, row: Row, processes: int) -> bool:
    """Return whether so many processes on CPUs are more than the CPUs of the cell's hosts."""
    cpus = group.conditions.get(CPU_COUNT, "")
    if group.device is not Device.CPU or not cpus.isdecimal():
        return False
    return processes > row.nodes * int(cpus)
