"""Which cell to ask for: the fastest, the cheapest, and the largest that is efficient enough.

Cells of one group of equal conditions are compared by their epochs.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from hpml_jobs.core import formulas
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.conditions import CPU_COUNT
from hpml_jobs.core.noise import known_interval
from hpml_jobs.core.statistics import Interval, ratio_interval
from hpml_jobs.core.strategies import BASELINE, Device, Strategy
from hpml_jobs.core.value import Value
from hpml_jobs.report.choose.cost import Candidate, Exclusion, Wish, candidates_of
from hpml_jobs.results.decision import (
    LEAST_GAP,
    Decision,
    compare,
    runs_to_exclude,
    scatter,
)
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

USUAL = (BASELINE, Strategy.DDP)
"""The strategies that are preferred among cells that the runs do not tell apart."""


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
    a failed check. `by_size` are the fastest cells of each size without one. `undecided` may change
    the size to ask for. Where the answer would rest on cells to `measure_again`, because they are
    too disturbed, no cell is chosen.
    """

    wish: Wish
    reference: Candidate
    candidates: tuple[Candidate, ...]
    fastest: Winner | None
    cheapest: Candidate | None
    ask: Winner | None
    undecided: Undecided | None
    measure_again: tuple[Candidate, ...]
    by_size: tuple[Candidate, ...]
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
    def steps(self) -> list[SizeStep]:
        """What more GPUs bring, from size to size."""
        return [SizeStep(*sizes) for sizes in itertools.pairwise(self.by_size)]

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
    candidates = candidates_of(group, wish, cluster)
    if not candidates:
        return None
    sound = [c for c in candidates if c.exclusion is not Exclusion.FAILED_CHECK]
    by_size = _by_size(sound)
    reference = min(candidates, key=lambda c: c.row.gpus)
    sizes = {candidate.row.gpus for candidate in by_size}
    # the answer would rest on them, or they are all there is of their size
    again = [
        candidate
        for candidate in candidates
        if candidate.is_disturbed
        and (candidate is reference or candidate.row.gpus not in sizes)
    ]
    ranked = [] if again else sound
    able = [candidate for candidate in ranked if candidate.exclusion is None]
    ask = undecided = None
    edges: tuple[Edge, ...] = ()
    if able:
        most_gpus = max(able, key=lambda c: c.row.gpus)
        ask = _winner(able[0] if wish.has_limit else most_gpus, able)
        undecided = _undecided(ask, by_size, reference, wish)
        edges = tuple(_edges(group, ask.candidate))
    return Choice(
        wish=wish,
        reference=reference,
        candidates=tuple(candidates),
        fastest=_winner(ranked[0], ranked) if ranked else None,
        cheapest=min(ranked, key=lambda c: (c.gpu_s, c.epoch_s), default=None),
        ask=ask,
        undecided=undecided,
        measure_again=tuple(again),
        by_size=tuple(by_size),
        edges=edges,
    )


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
    winner = _cheapest_usual(equal)
    if winner in near:
        near = [fastest, *(other for other in near if other is not winner)]
    is_decided = all(
        c.is_told is None and c.is_faster and c.other.row.gpus == size
        for c in compared
        if not c.is_told
    )
    instead_of = tuple(candidate for candidate in equal if candidate is not winner)
    return Winner(winner, instead_of, is_decided, tuple(near))


def _cheapest_usual(equal: Sequence[Candidate]) -> Candidate:
    """Return the cheapest cell, or of its size one with ddp or the plain loop, if there is one."""
    cheapest = min(equal, key=lambda c: (c.gpu_s, c.epoch_s))
    same_size = [c for c in equal if c.row.gpus == cheapest.row.gpus]
    return min(
        same_size, key=lambda c: (c.row.strategy not in USUAL, c.gpu_s, c.epoch_s)
    )


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
    interval = subject.row.times_as_fast(other.row)
    places = {subject.row.place_of_any_strategy, other.row.place_of_any_strategy}
    is_doubtful = len(places) == 1 and (subject.doubtful or other.doubtful)
    is_faster = not is_doubtful and other.epoch_s > least * subject.epoch_s
    if interval is None:
        return Comparison(other, is_faster, is_told=None)
    if is_doubtful or interval.low <= least < interval.high:
        return Comparison(other, is_faster, is_told=False)
    return Comparison(other, interval.low > least, is_told=True)


def _undecided(
    ask: Winner, by_size: Sequence[Candidate], reference: Candidate, wish: Wish
) -> Undecided | None:
    """Return what may be the cell to ask for instead: by the least efficiency, or by its time.

    The efficiency in question is that of the cell to ask for, or of the next larger size.
    """
    winner = ask.candidate
    if wish.has_limit:
        return _by_time(ask)
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
    interval = winner.row.times_as_fast(rival.row)
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
