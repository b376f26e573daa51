"""Table rows: medians over the runs at one place, and the values derived from them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from hpml_jobs.core import formulas
from hpml_jobs.core.built_in import Unit
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import Affected, CheckResult, Level
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.training_path import accumulation
from hpml_jobs.core.value import Value, by_key
from hpml_jobs.results.cells import CellResult, Place, Setup
from hpml_jobs.results.figures import (
    NO_FIGURES,
    WITHOUT,
    Bandwidth,
    Figures,
    LeftOut,
)
from hpml_jobs.results.statistics import (
    Interval,
    error_of_median,
    known_interval,
    ratio_interval,
)


class Work(Value, frozen=True, kw_only=True):
    """What times are of where that is not an epoch: so many samples, by their name."""

    samples: int
    name: str


class Timing(Value, frozen=True, kw_only=True):
    """Medians over the runs of one place: seconds per epoch, with and without data loading.

    `step_s` is the median duration of an iteration with a full batch. `train_s`, `stall_s`,
    `step_s`, `iterations`, `samples`, `gradient_bytes` and `loader_workers_total` may be unknown
    where the timings come from elsewhere. `units` are what throughput counts, in `unit`: those of
    all samples. `work` is what the times are of; None: an epoch.
    """

    runs: int
    epoch_s: float
    train_s: float | None
    stall_s: float | None
    step_s: float | None
    iterations: int | None
    samples: int | None
    gradient_bytes: int | None
    loader_workers_total: int | None
    unit: Unit
    units: int | None
    work: Work | None = None

    @property
    def units_per_s(self) -> float | None:
        """The throughput of all processes, in units per second."""
        if self.units is None:
            return None
        return formulas.units_per_s(self.units, self.epoch_s)


class Scaling(Value, frozen=True, kw_only=True):
    """Ratios to the reference at the same batch.

    `weak_efficiency` is a ratio of steps; None where they are not known. `cost_per_compute` needs
    more than one GPU, and the plain loop on one as the reference.
    """

    efficiency: float
    weak_efficiency: float | None
    cost_per_compute: float | None


class Residual(Value, frozen=True, kw_only=True):
    """The lab's residual estimate, in seconds per epoch: `comm_s` is derived, not measured.

    `bus_gb_per_s` (GB = 1e9 bytes) is None where `comm_s` is not above zero. Where train_s is not
    known, they are of whole epochs.
    """

    compute_s: float
    comm_s: float
    bus_gb_per_s: float | None


class Row(Value, frozen=True, kw_only=True, dict=True):
    """N GPUs with one strategy and treatment at one batch per GPU, made of `cells`.

    An iteration has `accumulate` batches. `runs` are those with numbers that count, `values` the
    medians, of the phases those of one `rank`; `left_out` were disturbed.
    `reference` is the setup that its ratios are against, at the same batch: the plain loop on one
    GPU, or in a group without such a cell its own smallest size. Without a valid record there is no
    timing, without a reference no speedup, without the plain loop no residual. `measured_cells` are
    those with numbers, by seed and repeat; `reference_row` is the row of its reference, unless it
    is that itself; `checks` are those of the study by slug, none before they are made.
    """

    strategy: Strategy
    gpus: int
    nodes: int
    treatment: str
    batch_per_gpu: int
    outcome: Outcome
    path: str = ""
    accumulate: int = 1
    timing: Timing | None = None
    reference: Setup | None = None
    speedup: float | None = None
    scaling: Scaling | None = None
    residual: Residual | None = None
    bandwidth: Bandwidth | None = None
    values: Figures | None = None
    runs: tuple[Figures, ...] = ()
    cells: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    rank: int | None = None
    measured_cells: tuple[CellResult, ...] = ()
    reference_row: "Row | None" = None
    checks: Mapping[str, tuple[CheckResult, ...]] = {}

    @property
    def disturbed_runs(self) -> int:
        """The number of runs of which nothing counts, because their timed epoch was disturbed."""
        return sum(run.role is Role.TIMED for run in self.left_out)

    def counts(self, slug: str, affected: Affected) -> bool:
        """Return whether the row's numbers of this kind contain a cell's run."""
        return not any(
            run.slug == slug and affected in WITHOUT[run.role] for run in self.left_out
        )

    @cached_property
    def records(self) -> list[Record]:
        """The records of its measured runs."""
        return [result.record for result in self.measured_cells if result.record]

    @cached_property
    def timed_records(self) -> list[Record]:
        """The records that its time is a median of."""
        return [r for r in self.records if self.counts(r.slug, Affected.TIME)]

    @cached_property
    def trained(self) -> list[Record]:
        """The records that trained the most epochs; none if no record has ranks."""
        with_ranks = [record for record in self.records if record.ranks]
        by_epochs = by_key((len(record.trained), record) for record in with_ranks)
        return by_epochs[max(by_epochs)] if by_epochs else []

    @cached_property
    def violations(self) -> list[tuple[CheckResult, str]]:
        """The results that are not passed, each with the name of its cell.

        Without those of a run that medians leave out: a note under the table names the run.
        """
        return [
            (result, slug)
            for slug in self.cells
            for result in self.checks.get(slug, ())
            if result.level is not Level.PASS
            if any(self.counts(slug, affected) for affected in result.affects)
        ]

    @cached_property
    def doubts(self) -> dict[Affected, list[CheckResult]]:
        """The results of the checks that make its numbers doubtful, by what they affect."""
        return by_key(
            (affected, result)
            for result, slug in self.violations
            for affected in result.affects
            if result.is_doubt and self.counts(slug, affected)
        )

    @property
    def pair(self) -> "Pair | None":
        """Its row and that of its reference, which may be itself; None without a reference."""
        return Pair(self.reference_row or self, self) if self.reference else None

    @property
    def plain_loop(self) -> "Row | None":
        """The plain loop on one GPU that its ratios are against; None without it."""
        reference = self.reference_row or self
        return reference if self.reference and reference.is_baseline else None

    @property
    def is_ratio_doubtful(self) -> bool:
        """Whether a check makes its time doubtful, or that of its reference."""
        return self.pair.is_doubtful if self.pair else Affected.TIME in self.doubts

    @property
    def figures(self) -> Figures:
        """Its medians; without numbers all of them are None."""
        return self.values or NO_FIGURES

    @property
    def epoch_s(self) -> float:
        """Seconds of its epoch; NaN without numbers."""
        return self.figures.epoch_s

    @cached_property
    def times_s(self) -> tuple[float, ...]:
        """Seconds of the timed epoch of every run that counts."""
        return tuple(run.epoch_s for run in self.runs)

    @property
    def error(self) -> float | None:
        """The error of the logarithm of its time, a share; None if it is not known.

        Two times t1, t2 with errors e1, e2 differ at 95 % if |ln(t1 / t2)| > 1.96 hypot(e1, e2).
        """
        return error_of_median(self.times_s, (run.noise for run in self.runs))

    @property
    def setup(self) -> Setup:
        """The row of its table."""
        return Setup(self.gpus, self.nodes, self.strategy, self.treatment, self.path)

    @property
    def global_batch(self) -> int:
        """Samples of an iteration on all GPUs."""
        return self.gpus * self.batch_per_gpu * self.accumulate

    @property
    def path_of_batch(self) -> str:
        """Its training path without accumulation, on which a batch is computed."""
        return self.path.removesuffix(accumulation(self.accumulate)).removesuffix(", ")

    @property
    def place(self) -> Place:
        """Its setup and batch."""
        return Place(self.setup, self.batch_per_gpu)

    @property
    def ratio_key(self) -> tuple[int, str]:
        """Batch and training path: the ratios in the tables are of rows where they are equal."""
        return self.batch_per_gpu, self.path

    @property
    def is_compared(self) -> bool:
        """Whether it has a speedup against another row."""
        return self.speedup is not None and self.reference != self.setup

    @property
    def is_baseline(self) -> bool:
        """Whether it is what others are compared with."""
        return self.setup.is_baseline


LEAST_COVERAGE = 0.75
"""That of three runs each: two may be alike by chance, and their noise says more."""


class Pair(NamedTuple):
    """The same global batch, or batch per GPU, on a reference and on more GPUs; or a row twice.

    The reference is one GPU, or the smallest size.
    """

    reference: Row
    parallel: Row

    @property
    def speedup(self) -> float:
        """The ratio of the times; strong(N; G) = epoch_s(g, G / g) / epoch_s(N, G / N)."""
        return formulas.speedup(self.reference.epoch_s, self.parallel.epoch_s)

    @property
    def efficiency(self) -> float:
        """Share of the ideal speedup, N / g."""
        return formulas.efficiency(
            self.speedup, self.parallel.gpus, self.reference.gpus
        )

    @property
    def interval(self) -> Interval | None:
        """That of the speedup: by three runs of both or more, else by noise and scatter.

        None: of a row and itself, or a single run whose noise is not known.
        """
        reference, row = self
        if row is reference:
            return None
        of_runs = ratio_interval(reference.times_s, row.times_s)
        if of_runs is not None and of_runs.coverage >= LEAST_COVERAGE:
            return of_runs
        return known_interval(self.speedup, reference.error, row.error) or of_runs

    @property
    def efficiencies(self) -> Interval | None:
        """The interval of the efficiency."""
        return self.interval and self.interval.divided_by(
            self.speedup / self.efficiency
        )

    def is_near(self, efficiency: float) -> bool:
        """Return whether its efficiency may be another one, by its interval, or without one."""
        ends = self.efficiencies
        return ends is None or ends.low < efficiency <= ends.high

    @property
    def is_doubtful(self) -> bool:
        """Whether a check makes one of the times doubtful."""
        return any(Affected.TIME in row.doubts for row in self)

    @property
    def serial_fraction(self) -> float | None:
        """The serial fraction by Karp and Flatt; None where it is outside (0, 1).

        None against more than one GPU: T1, which it divides by, is not known.
        """
        if not self.reference.is_baseline:
            return None
        value = formulas.karp_flatt(self.speedup, self.parallel.gpus)
        return value if 0 < value < 1 else None


class Series(NamedTuple):
    """Two sizes or more at one batch per GPU, or `is_global`: at one global batch.

    Each is paired with the smallest one, which is the first and paired with itself.
    """

    batch: int
    is_global: bool
    sizes: tuple[Pair, ...]

    @property
    def smallest(self) -> Row:
        """The row that the others are compared with."""
        return self.sizes[0].parallel

    @property
    def largest(self) -> Pair:
        """The size with the most GPUs."""
        return self.sizes[-1]


def series_of(rows: Sequence[Row], pairs: Iterable[Pair]) -> Series | None:
    """Return the series of the answer from plain rows; None where nothing is compared.

    It has the most sizes, of these the largest without a doubt if possible. Of several batches it
    is the largest one whose rate on the smallest size is within 10 % of the best.
    """
    found = list(_at_batches(rows)) or list(_at_global_batches(pairs, rows))
    if not found:
        return None
    by_merit = by_key(
        ((len(series.sizes), not series.largest.is_doubtful), series)
        for series in found
    )
    best = by_merit[max(by_merit)]
    times = {series.batch: series.smallest.epoch_s for series in best}
    batch = formulas.largest_near_best(times)
    return next(series for series in best if series.batch == batch)


def plain_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of one training path and strategy, with nothing done to them.

    Where all have a treatment it is the most frequent one; ddp goes before other strategies.
    """
    if not rows:
        return []
    treatments = Counter((row.path, row.treatment) for row in rows)
    plain = [key for key in treatments if key[0] == key[1]]
    path, treatment = max(plain or treatments, key=treatments.__getitem__)
    alike = [
        row
        for row in rows
        if row.path == path and (row.treatment == treatment or row.is_baseline)
    ]
    strategies = Counter(row.strategy for row in alike if not row.is_baseline)
    main = max(strategies, key=strategies.__getitem__, default=Strategy.DDP)
    if Strategy.DDP in strategies:
        main = Strategy.DDP
    return [row for row in alike if row.is_baseline or row.strategy is main]


def _at_batches(rows: Iterable[Row]) -> Iterator[Series]:
    by_batch = by_key((row.batch_per_gpu, row) for row in rows)
    for batch, of_batch in by_batch.items():
        reference = min(of_batch, key=lambda row: (row.gpus, row.epoch_s))
        if any(row.gpus > reference.gpus for row in of_batch):
            yield _series(batch, reference, of_batch)


def _at_global_batches(pairs: Iterable[Pair], rows: Sequence[Row]) -> Iterator[Series]:
    by_batch = by_key(
        (pair.parallel.global_batch, pair) for pair in pairs if pair.parallel in rows
    )
    for batch, same in by_batch.items():
        parallel = [pair.parallel for pair in same]
        series = _series(batch, same[0].reference, parallel)
        yield series._replace(is_global=True)


def _series(batch: int, reference: Row, rows: Sequence[Row]) -> Series:
    """Return the fastest row of each size against a reference."""
    slowest_first = sorted(rows, key=attrgetter("epoch_s"), reverse=True)
    fastest = {row.gpus: row for row in slowest_first}
    sizes = [Pair(reference, reference)]
    for gpus, row in sorted(fastest.items()):
        if gpus > reference.gpus:
            sizes.append(Pair(reference, row))
    return Series(batch, is_global=False, sizes=tuple(sizes))
