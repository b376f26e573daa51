"""Table rows: medians over the runs at one place, and the values derived from them."""

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import TypeVar

import msgspec

from hpml_jobs.core import formulas
from hpml_jobs.core.built_in import Unit
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.noise import error_of_median, known_interval
from hpml_jobs.core.place import Place, Setup, place_of, setup_of, setup_order
from hpml_jobs.core.record import Record
from hpml_jobs.core.statistics import Interval, Sample, ratio_interval
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.training_path import accumulation
from hpml_jobs.core.value import Value
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.figures import (
    NO_FIGURES,
    Bandwidth,
    Figures,
    LeftOut,
    bandwidth,
    counted_runs,
    medians,
)

K = TypeVar("K")
V = TypeVar("V")


def by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, keys and values in the order in which they come."""
    values: dict[K, list[V]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values


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

    An iteration has `accumulate` batches. `runs` are those with numbers that count, `values` their
    medians; `left_out` were disturbed.
    `reference` is the setup that its ratios are against, at the same batch: the plain loop on one
    GPU, or in a group without such a cell its own smallest size. Without a valid record there is no
    timing, without a reference no speedup, without the plain loop no residual.
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

    @property
    def disturbed_runs(self) -> int:
        """The number of runs of which nothing counts, because their timed epoch was disturbed."""
        return sum(run.role is Role.TIMED for run in self.left_out)

    def counts(self, slug: str, affected: Affected) -> bool:
        """Return whether the row's numbers of this kind contain a cell's run."""
        return not any(
            run.slug == slug and run.holds_for(affected) for run in self.left_out
        )

    def has_number(self, affected: Affected) -> bool:
        """Return whether the table that shows what is affected has a number of the row."""
        match affected:
            case Affected.SPLIT:
                return self.gpus > 1 and self.figures.compute_s is not None
            case Affected.BANDWIDTH:
                bandwidth = self.bandwidth
                return bandwidth is not None and bandwidth.lab_gb_per_s is not None
        return True

    @property
    def figures(self) -> Figures:
        """Its medians; without numbers all of them are None."""
        return self.values or NO_FIGURES

    @cached_property
    def epochs(self) -> Sample:
        """Seconds of the timed epoch of every run that counts."""
        return Sample(tuple(run.epoch_s for run in self.runs))

    @property
    def error(self) -> float | None:
        """The error of the logarithm of its time, a share; None if it is not known.

        Two times t1, t2 with errors e1, e2 differ at 95 % if |ln(t1 / t2)| > 1.96 hypot(e1, e2).
        """
        return error_of_median(self.epochs.runs, (run.noise for run in self.runs))

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


def place_order(result: CellResult) -> tuple[object, ...]:
    """Return the order of cells: row, batch, seed, repeat; cells without settings come first."""
    cell = result.cell
    if cell is None:
        return (result.slug,)
    numbers = cell.batch, cell.seed, cell.repeat
    return setup_order(setup_of(cell)), *numbers, result.slug


def make_rows(
    cells: Iterable[CellResult],
    uncertain: Collection[str] = (),
) -> tuple[Row, ...]:
    """Return a row for every place that was requested, by setup and batch.

    `uncertain` cells may belong to other conditions: nothing is claimed of their outcome.
    """
    places = by_key((place_of(result.cell), result) for result in cells if result.cell)
    timed = [_timed(place, runs, uncertain) for place, runs in places.items()]
    timed.sort(key=lambda row: (setup_order(row.setup), row.batch_per_gpu))
    comparable = by_key((row.ratio_key, row) for row in timed if row.timing)
    has_single = any(row.is_baseline for row in timed)
    derived = []
    for row in timed:
        same = comparable.get(row.ratio_key, [])
        reference = reference_among(row, same, has_single=has_single)
        derived.append(_derived(row, reference))
    return tuple(derived)


def reference_among(
    row: Row, comparable: Sequence[Row], *, has_single: bool
) -> Row | None:
    """Return the row that a row is compared with, if any, among those that it may be.

    It is the plain loop on one GPU. In a group without any such cell it is the smallest of several
    sizes of the same strategy, without treatment or with the same; of equal sizes the one without.
    The first of several is preferred.
    """
    if has_single:
        return next((other for other in comparable if other.is_baseline), None)
    same = [
        other
        for other in comparable
        if other.strategy is row.strategy
        and (other.setup.is_plain or other.treatment == row.treatment)
    ]
    if len({other.gpus for other in same}) < 2:
        return None
    return min(same, key=lambda other: setup_order(other.setup))


LEAST_COVERAGE = 0.75
"""That of three runs each: two may be alike by chance, and their noise says more."""


def speedup_interval(reference: Row, row: Row) -> Interval | None:
    """Return the interval of a speedup: by three runs of both or more, else by noise and scatter.

    None: a single run whose noise is not known.
    """
    of_runs = ratio_interval(reference.epochs.runs, row.epochs.runs)
    if of_runs is not None and of_runs.coverage >= LEAST_COVERAGE:
        return of_runs
    ratio = formulas.speedup(reference.epochs.median, row.epochs.median)
    return known_interval(ratio, reference.error, row.error) or of_runs


def _timed(place: Place, runs: Sequence[CellResult], uncertain: Collection[str]) -> Row:
    """Return the row of one place with its timing; without one, with OOM or the first outcome."""
    setup = place.setup
    records = [run.record for run in runs if run.record is not None and run.measured]
    counted = counted_runs(records)
    values = timing = row_bandwidth = None
    if counted.values:
        values = medians(counted.values)
        timing = _timing(counted.records, values)
        row_bandwidth = bandwidth(
            values, setup.strategy, setup.gpus, timing.iterations, timing.gradient_bytes
        )
    outcomes = [
        Outcome.UNKNOWN if run.slug in uncertain else run.outcome for run in runs
    ]
    without = Outcome.OOM if Outcome.OOM in outcomes else outcomes[0]
    return Row(
        strategy=setup.strategy,
        gpus=setup.gpus,
        nodes=setup.nodes,
        treatment=setup.treatment,
        path=setup.path,
        accumulate=next((run.cell.path.accumulate for run in runs if run.cell), 1),
        batch_per_gpu=place.batch_per_gpu,
        outcome=Outcome.OK if timing else without,
        timing=timing,
        bandwidth=row_bandwidth,
        values=values,
        # By their times, so that the numbers of the repeats change no digit of a resample.
        runs=tuple(sorted(counted.values, key=lambda run: run.epoch_s)),
        cells=tuple(run.slug for run in runs),
        left_out=counted.left_out,
    )


def _timing(records: Sequence[Record], values: Figures) -> Timing:
    first = records[0]
    workers = [rank.loader_workers for rank in first.ranks]
    samples = first.work_samples
    workload = first.cell.workload
    work = None
    if samples:
        work = Work(samples=samples, name=workload.samples_name)
    return Timing(
        runs=len(records),
        epoch_s=values.epoch_s,
        train_s=values.train_s,
        stall_s=values.stall_s,
        step_s=values.step_s,
        iterations=first.iterations,
        samples=first.samples,
        gradient_bytes=gradient_bytes_of(first),
        loader_workers_total=sum(workers) if workers else None,
        unit=workload.throughput_unit,
        units=first.units,
        work=work,
    )


def gradient_bytes_of(record: Record) -> int | None:
    """Return the bytes of one set of gradients: of the model, or of the stated parameters."""
    if record.model is not None:
        return record.model.gradient_bytes
    parameters = record.cell.workload.parameters
    return None if parameters is None else formulas.gradient_bytes(parameters)


def _derived(row: Row, reference: Row | None) -> Row:
    """Return the row with its ratios, and for several GPUs the residual: medians first.

    What compares with computation alone needs the plain loop on one GPU: on more, the reference
    contains communication too.
    """
    if row.timing is None or reference is None or reference.timing is None:
        return row
    speedup = formulas.speedup(reference.timing.epoch_s, row.timing.epoch_s)
    efficiency = formulas.efficiency(speedup, row.gpus, reference.gpus)
    base_step_s = reference.timing.step_s
    step_s = row.timing.step_s
    weak_efficiency = cost = residual = None
    if base_step_s and step_s:
        weak_efficiency = formulas.weak_efficiency(base_step_s, step_s)
    if row.gpus > 1 and reference.is_baseline:
        cost = formulas.cost_per_compute(efficiency)
        residual = _residual(row, row.timing, reference.timing)
    scaling = Scaling(
        efficiency=efficiency, weak_efficiency=weak_efficiency, cost_per_compute=cost
    )
    ratios = {"speedup": speedup, "scaling": scaling, "residual": residual}
    return msgspec.structs.replace(row, reference=reference.setup, **ratios)


def _residual(row: Row, timing: Timing, baseline: Timing) -> Residual:
    row_s = timing.train_s
    base_s = baseline.train_s
    if row_s is None or base_s is None:
        row_s = timing.epoch_s
        base_s = baseline.epoch_s
    # equal shares, where the numbers are not reported
    images = 1 / row.gpus
    base_images = 1
    if timing.samples is not None and baseline.samples is not None:
        images = timing.samples / row.gpus
        base_images = baseline.samples
    comm_s = formulas.residual_communication_s(row_s, images, base_s, base_images)
    size = timing.gradient_bytes
    speed = None
    if comm_s > 0 and size is not None and timing.iterations is not None:
        traffic = row.strategy.traffic
        sent = formulas.expected_bytes(timing.iterations, size, traffic.passes or 1)
        wire_bytes = traffic.bandwidth.wire_bytes(sent, row.gpus)
        speed = formulas.algorithm_gb_per_s(wire_bytes, comm_s)
    return Residual(
        compute_s=row_s - comm_s,
        comm_s=comm_s,
        bus_gb_per_s=speed,
    )
