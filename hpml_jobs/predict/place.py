"""Places and what was measured at them: observations from records, and the targets of predictions.

Times are seconds of an iteration: of one optimizer step, all its micro-steps included.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

import msgspec

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.disturbance import quiet_microbenchmarks
from hpml_jobs.core.measurements import CollectiveKind, Phases, Purpose, Role
from hpml_jobs.core.message_times import pooled
from hpml_jobs.core.record import Record, least_waiting
from hpml_jobs.core.strategies import Strategy, is_baseline
from hpml_jobs.core.value import Value


class Size(NamedTuple):
    """A number of processes on a number of nodes."""

    nodes: int
    gpus: int

    @property
    def crosses_nodes(self) -> bool:
        """Whether messages leave a node."""
        return self.nodes > 1

    @property
    def gpus_per_node(self) -> int:
        """GPUs on each node."""
        return math.ceil(self.gpus / self.nodes)

    @property
    def text(self) -> str:
        """Its keys: `gpus=16 nodes=2`."""
        return f"gpus={self.gpus}" + (f" nodes={self.nodes}" if self.crosses_nodes else "")


class Kind(NamedTuple):
    """What all observations of a series share: strategy, training path and treatment."""

    strategy: str
    path: str
    treatment: str


class SentMessages(Value, frozen=True, kw_only=True):
    """Messages of one kind and size that a rank passes through a collective in one iteration."""

    kind: CollectiveKind
    bytes: int
    per_iteration: float


class Sweep(Value, frozen=True, kw_only=True):
    """Seconds of one collective by message bytes, on idle devices."""

    kind: CollectiveKind
    times_s: dict[int, float]


class Place(Value, frozen=True, kw_only=True):
    """What an observation and a target have in common: where and how an iteration computes.

    `batch` is per GPU (per process with device=cpu) and micro-step. `path` is the training path in
    words, without accumulation; `treatment` what else was done to the cell, in words.
    """

    gpus: int
    batch: int
    strategy: Strategy
    nodes: int = 1
    accumulate: int = 1
    path: str = ""
    treatment: str = ""

    @property
    def size(self) -> Size:
        """Its GPUs and nodes."""
        return Size(self.nodes, self.gpus)

    @property
    def kind(self) -> Kind:
        """What it shares with the observations of its series."""
        return Kind(self.strategy.value, self.path, self.treatment)

    @property
    def gpus_per_node(self) -> int:
        """GPUs on each node, the last one rounded up."""
        return self.size.gpus_per_node

    @property
    def samples(self) -> int:
        """Samples of an iteration on all GPUs."""
        return self.gpus * self.batch * self.accumulate


class Observation(Place, frozen=True, kw_only=True):
    """A measured place: medians over its runs, in seconds per iteration.

    Of a rate alone there is nothing but `step_s`. `stall_s` is the part of it in which the device
    waited for a batch; `unsynced_s` is an iteration without exchange on the same GPUs; the
    other times are those of the instrumented epoch, on the rank that waits least. `messages` are
    those of gradients and parameters; `sweeps` are the microbenchmark's.
    """

    step_s: float
    runs: int = 1
    stall_s: float | None = None
    unsynced_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    exposed_s: float | None = None
    messages: tuple[SentMessages, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    cells: tuple[str, ...] = ()


class Target(Place, frozen=True, kw_only=True):
    """A place to predict."""


def place_fields(value: Place) -> dict[str, Any]:
    """Return the fields that an observation or a target has as a place, by name."""
    return {field.name: getattr(value, field.name) for field in msgspec.structs.fields(Place)}


def changed(value: Place, **fields: object) -> Target:
    """Return the target that differs from a place in some fields."""
    return Target(**place_fields(value) | fields)


def distance(target: Place, nearest: Place) -> float:
    """Return how far a target is from a measured place: the sum of doublings and halvings.

    Doublings of GPUs, of the batch and of micro-steps count alike; beyond one doubling of nodes,
    those of nodes and GPUs count as often as nodes double.

    >>> eight = Place(gpus=8, batch=32, strategy=Strategy.DDP)
    >>> distance(Place(gpus=32, batch=64, strategy=Strategy.DDP, nodes=4), eight)
    9.0
    """
    ratios = (target.batch / nearest.batch, target.accumulate / nearest.accumulate)
    gpus, nodes, *others = (
        abs(math.log2(ratio))
        for ratio in (target.gpus / nearest.gpus, target.nodes / nearest.nodes, *ratios)
    )
    return (gpus + nodes) * max(nodes, 1.0) + sum(others)


def series_of(observations: Sequence[Observation]) -> dict[Kind, list[Observation]]:
    """Return the measured cells on several GPUs by strategy, path and treatment."""
    series: dict[Kind, list[Observation]] = {}
    for cell in observations:
        if cell.gpus > 1:
            series.setdefault(cell.kind, []).append(cell)
    return series


def singles_of(observations: Sequence[Observation], path: str) -> list[Observation]:
    """Return the plain loop on one GPU with a training path."""
    return [
        cell
        for cell in observations
        if cell.gpus == 1
        and cell.path == path
        and is_baseline(cell.strategy, cell.treatment, cell.path)
    ]


def observation(records: Sequence[Record]) -> Observation | None:
    """Return what records of one place measured; None without a duration of an iteration.

    `records` are one or more runs that count; they differ in nothing but seed and repeat.
    """
    step_s = _median(records, _step_s)
    if step_s is None:
        return None
    place, number = place_of(records[0].cell), least_waiting(records)

    def of_phases(value: Callable[[Phases], float]) -> Reader:
        def read(record: Record) -> float | None:
            rank = record.rank_of(number)
            return value(rank.phases) if rank and rank.phases else None

        return read

    return Observation(
        **msgspec.structs.asdict(place),
        step_s=step_s,
        runs=len(records),
        stall_s=_median(records, _stall_s),
        unsynced_s=_median(records, _unsynced_s),
        backward_s=_per_iteration(records, of_phases(lambda p: p.backward_s)),
        optimizer_s=_per_iteration(
            records, of_phases(lambda p: p.optimizer_s - p.comm_optimizer_s)
        ),
        exposed_s=_per_iteration(  # without waiting for late ranks where that is known
            records, lambda r: r.comm_exposed_s if r.exchange_s is None else r.exchange_s
        ),
        messages=_messages(records),
        sweeps=_sweeps(records),
        cells=tuple(record.slug for record in records),
    )


def place_of(cell: Cell) -> Place:
    """Return the place that a cell measures; accumulation is in neither path nor treatment."""
    path = msgspec.structs.replace(cell.path, accumulate=1)
    once = msgspec.structs.replace(cell, path=path)
    return Place(
        gpus=cell.gpus,
        nodes=cell.nodes,
        batch=cell.batch,
        accumulate=cell.path.accumulate,
        strategy=cell.strategy,
        path=path.label,
        treatment=once.treatment,
    )


Reader = Callable[[Record], float | None]


def _median(records: Sequence[Record], value: Reader) -> float | None:
    """Return the median over the runs that have a value."""
    values = [of_run for record in records if (of_run := value(record)) is not None]
    return median(values) if values else None


def _step_s(record: Record) -> float | None:
    return imported_step_s(record) if record.imported else record.step_s


def _per_iteration(records: Sequence[Record], value: Reader) -> float | None:
    """Return the median of a value of the instrumented epoch, by its iterations."""

    def of_run(record: Record) -> float | None:
        total_s, iterations = value(record), _instrumented_iterations(record)
        return None if total_s is None or not iterations else total_s / iterations

    return _median(records, of_run)


def _instrumented_iterations(record: Record) -> int | None:
    rank = record.least_waiting
    epoch = rank.epoch(Role.INSTRUMENTED) if rank else None
    return epoch.iterations if epoch else None


def _stall_s(record: Record) -> float | None:
    if record.imported:
        return None
    timed = record.most_stalled.timed
    return timed.stall_s / timed.iterations if timed.stall_s else None


def _unsynced_s(record: Record) -> float | None:
    """Return the median of a full iteration without exchange, on the rank with the longest."""
    epochs = [rank.epoch(Role.UNSYNCED) for rank in record.ranks]
    steps = [epoch.steps for epoch in epochs if epoch and epoch.steps]
    return max((s.full_median_s or s.median_s for s in steps), default=None)


def _messages(records: Sequence[Record]) -> tuple[SentMessages, ...]:
    """Return what the first run with messages sent: all runs of a place send the same."""
    for record in records:
        iterations = _instrumented_iterations(record)
        if record.communication and iterations:
            return tuple(
                SentMessages(kind=m.kind, bytes=m.bytes, per_iteration=m.count / iterations)
                for m in record.communication.messages
                if m.purpose in (Purpose.GRADIENTS, Purpose.PARAMETERS)
            )
    return ()


def _sweeps(records: Sequence[Record]) -> tuple[Sweep, ...]:
    quiet = quiet_microbenchmarks(records)
    benchmarks = [record.microbenchmark for record in quiet if record.microbenchmark]
    kinds = dict.fromkeys(kind for benchmark in benchmarks for kind in benchmark.kinds)
    return tuple(
        Sweep(kind=CollectiveKind(kind), times_s=pooled(b.times_of(kind) for b in benchmarks))
        for kind in kinds
    )


def imported_step_s(record: Record) -> float | None:
    """Return the seconds of an iteration of an imported row; None without its rate.

    Where samples are tokens, a batch counts sequences of unreported length, and it is the time of
    GPUs x batch tokens: in proportion to an iteration, so that rates are right.
    """
    if record.imported is None:
        return None
    if record.step_s is not None:
        return record.step_s
    samples = record.samples
    return record.cell.gpus * record.cell.batch * record.epoch_s / samples if samples else None


def gpus_per_node(records: Iterable[Record]) -> int | None:
    """Return how many GPUs a node has by the rows of a study; None if they do not say it."""
    of_rows = [
        row.gpus_per_node for row in (r.imported for r in records) if row and row.gpus_per_node
    ]
    return max(of_rows, default=None)
