"""Groups of cells that may share a table: one workload under the same conditions, with its rows."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from hpml_jobs.core import formulas
from hpml_jobs.core.cell import Cell, Origin, Outcome
from hpml_jobs.core.check_result import CheckResult
from hpml_jobs.core.record import Model, Record
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import NaturalKey, natural_key
from hpml_jobs.core.value import Value, by_key
from hpml_jobs.results.cells import CellResult, Place, place_order
from hpml_jobs.results.conditions import (
    CODE,
    UNRECORDED,
    WORKLOAD,
    WORKLOAD_CONDITIONS,
    Conditions,
    measured_conditions,
    precision_of,
    requested_conditions,
)
from hpml_jobs.results.figures import Figures, bandwidth, counted_runs, medians
from hpml_jobs.results.gap.parts import Gap, gap_of
from hpml_jobs.results.rows import (
    Pair,
    Residual,
    Row,
    Scaling,
    Series,
    Timing,
    Work,
    plain_rows,
    series_of,
)


class ConditionGroup(Value, frozen=True, kw_only=True, dict=True):
    """Cells that may share a table, and their numbers as rows.

    `measured_as` is empty where none of them has a record. A cell that ran under unknown conditions
    is in every group that it may belong to, and `uncertain` names it if there are several.
    `elsewhere` gives for a place the number of another group that measured it under other
    conditions; `checks` are the data-quality checks by slug. `name` tells the groups of
    a report apart by what differs; empty if there is one group.
    """

    requested: Conditions
    measured_as: Conditions
    cells: tuple[CellResult, ...]
    rows: tuple[Row, ...]
    uncertain: frozenset[str] = frozenset()
    elsewhere: Mapping[Place, int] = {}
    checks: Mapping[str, tuple[CheckResult, ...]] = {}
    name: str = ""

    @cached_property
    def conditions(self) -> dict[str, str]:
        """All conditions on which the cells agree."""
        return dict(self.requested + self.measured_as)

    @cached_property
    def a_cell(self) -> Cell:
        """A representative cell: all cells agree in everything but their place."""
        return next(result.cell for result in self.cells if result.cell is not None)

    @property
    def device(self) -> Device:
        """The device that the cells compute on."""
        return self.a_cell.device

    @property
    def kind(self) -> tuple[str, Device]:
        """The name of its workload, and its device."""
        return self.a_cell.workload.name, self.device

    @property
    def origin(self) -> Origin:
        """Where its numbers come from."""
        return self.a_cell.origin

    @cached_property
    def precisions(self) -> tuple[str, ...]:
        """The number formats of the cells' computing."""
        records = (result.record for result in self.cells if result.record)
        words = (precision_of(record) for record in records if record.facts)
        return tuple(dict.fromkeys(words))

    @cached_property
    def work(self) -> Work | None:
        """What the times are of, where that is not an epoch."""
        return next((row.timing.work for row in self.timed if row.timing), None)

    @property
    def model(self) -> Model | None:
        """The trained model, from the first record that has it."""
        models = (result.record.model for result in self.cells if result.record)
        return next((model for model in models if model), None)

    @cached_property
    def timed(self) -> tuple[Row, ...]:
        """The rows with numbers."""
        return tuple(row for row in self.rows if row.timing)

    @property
    def without_code(self) -> dict[str, str]:
        """The conditions other than the user's code."""
        return _without_code(self.conditions)

    @property
    def latest_began(self) -> float:
        """When the latest attempt of its cells began; 0 if that is not known."""
        attempts = (result.latest for result in self.cells if result.latest)
        return max((attempt.began or 0.0 for attempt in attempts), default=0.0)

    @cached_property
    def plain_rows(self) -> list[Row]:
        """The rows of one training path and strategy that the answer is about."""
        return plain_rows(self.timed)

    @cached_property
    def series(self) -> Series | None:
        """The sizes of the answer; None where nothing is compared."""
        return series_of(self.plain_rows, self.pairs)

    @cached_property
    def gaps(self) -> dict[Place, Gap]:
        """The gaps of rows with more GPUs than their reference, where a part is known."""
        pairs = [row.pair for row in self.timed if row.pair]
        return {
            pair.parallel.place: gap
            for pair in pairs
            if pair.parallel.gpus > pair.reference.gpus
            if (gap := gap_of(pair))
        }

    @cached_property
    def violations(self) -> list[tuple[CheckResult, Row, str]]:
        """The results that are not passed, each with its row and the name of its cell."""
        return [
            (result, row, slug) for row in self.rows for result, slug in row.violations
        ]

    @cached_property
    def pairs(self) -> list[Pair]:
        """Every pair with the same global batch in the grid."""
        rows = [((row.global_batch, row.path_of_batch), row) for row in self.timed]
        by_global_batch = by_key(rows)
        has_single = any(row.is_baseline for row in self.rows)
        same_batch = []
        for batch, row in rows:
            # The same global batch may be a batch on N GPUs and N accumulated batches on one.
            candidates = sorted(
                by_global_batch[batch], key=lambda other: other.path != row.path
            )
            reference = reference_among(row, candidates, has_single=has_single)
            if row.gpus > 1 and reference and reference.gpus < row.gpus:
                same_batch.append(Pair(reference, row))
        return same_batch


def group(cells: Iterable[CellResult]) -> list[ConditionGroup]:
    """Return the cells whose settings are known in groups that may share tables, in fixed order."""
    measured: dict[tuple[Conditions, Conditions], list[CellResult]] = {}
    unmeasured: list[tuple[Conditions, CellResult]] = []
    for result in cells:
        if result.cell is None:
            continue
        key = requested_conditions(result.cell)
        conditions = measured_conditions(result.record) if result.record else None
        if conditions is None:
            unmeasured.append((key, result))
        else:
            measured.setdefault((key, conditions), []).append(result)
    recorded_conditions = by_key((conditions[0], conditions) for conditions in measured)
    uncertain = set()
    for key, result in unmeasured:
        homes = recorded_conditions.get(key, [(key, ())])
        for home in homes:
            measured.setdefault(home, []).append(result)
        if len(homes) > 1:
            uncertain.add(result.slug)
    groups = [
        _condition_group(key, conditions, members, uncertain)
        for (key, conditions), members in measured.items()
    ]
    return sorted(groups, key=_order)


def _order(
    group: ConditionGroup,
) -> tuple[list[list[tuple[str, NaturalKey]]], float]:
    """Return the order of groups: by the conditions' values, numbers in `args` by their size.

    Of two versions of the user's code the latest is first.
    """
    both = (group.requested, group.measured_as)
    parts = [_without_code(dict(part)) for part in both]
    values = [[(name, _value_key(name, part[name])) for name in part] for part in parts]
    return values, -group.latest_began


def _without_code(conditions: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in conditions.items() if not name.startswith(CODE)
    }


def _value_key(name: str, value: str) -> NaturalKey:
    return natural_key(value) if name == "args" else ((), value)


def _condition_group(
    key: Conditions,
    conditions: Conditions,
    members: Iterable[CellResult],
    uncertain: set[str],
) -> ConditionGroup:
    cells = tuple(sorted(members, key=place_order))
    uncertain_here = frozenset(uncertain & {result.slug for result in cells})
    return ConditionGroup(
        requested=key,
        measured_as=conditions,
        cells=cells,
        rows=make_rows(cells, uncertain_here),
        uncertain=uncertain_here,
    )


def make_rows(
    cells: Iterable[CellResult],
    uncertain: Collection[str] = (),
) -> tuple[Row, ...]:
    """Return a row for every place that was requested, by setup and batch.

    `uncertain` cells may belong to other conditions: nothing is claimed of their outcome.
    """
    places = by_key((result.place, result) for result in cells if result.place)
    timed = [_timed(place, runs, uncertain) for place, runs in places.items()]
    timed.sort(key=lambda row: (row.setup.order, row.batch_per_gpu))
    comparable = by_key((row.ratio_key, row) for row in timed if row.timing)
    has_single = any(row.is_baseline for row in timed)
    derived: dict[Place, Row] = {}
    for row in timed:
        same = comparable.get(row.ratio_key, [])
        reference = reference_among(row, same, has_single=has_single)
        # a reference comes before the others: it is the smallest
        against = derived.get(reference.place) if reference else None
        derived[row.place] = _derived(row, reference, against)
    return tuple(derived.values())


def with_checks(
    rows: Iterable[Row], checks: Mapping[str, tuple[CheckResult, ...]]
) -> tuple[Row, ...]:
    """Return the rows with the checks of their study, against rows with checks too."""
    checked: dict[Place, Row] = {}
    for row in rows:
        against = row.reference_row and checked[row.reference_row.place]
        checked[row.place] = replace(row, checks=checks, reference_row=against)
    return tuple(checked.values())


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
    return min(same, key=lambda other: other.setup.order)


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
        **setup._asdict(),
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
        rank=counted.rank,
        measured_cells=tuple(run for run in runs if run.measured),
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


def _derived(row: Row, reference: Row | None, against: Row | None) -> Row:
    """Return the row with its ratios, and for several GPUs the residual: medians first.

    What compares with computation alone needs the plain loop on one GPU: on more, the reference
    contains communication too.
    """
    if row.timing is None or reference is None or reference.timing is None:
        return row
    pair = Pair(reference, row)
    efficiency = pair.efficiency
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
    return replace(
        row,
        reference=reference.setup,
        speedup=pair.speedup,
        scaling=scaling,
        residual=residual,
        reference_row=against,
    )


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


def differing(tables: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the conditions that differ between tables of conditions, with each table's value.

    Two workloads differ in nearly everything; there the name says enough.
    """
    names = dict.fromkeys(what for table in tables for what in table)
    result = {}
    for what in names:
        values = [table.get(what, UNRECORDED) for table in tables]
        if len({*values} - {UNRECORDED}) > 1 and not _follows_from_name(what, tables):
            result[what] = values
    return result


def _follows_from_name(what: str, tables: Sequence[Mapping[str, str]]) -> bool:
    """Return whether `what` differs only between workloads of different names."""
    if what not in WORKLOAD_CONDITIONS and not what.startswith(CODE):
        return False
    values: dict[str, set[str]] = {}
    for table in tables:
        if what in table:
            values.setdefault(table[WORKLOAD], set()).add(table[what])
    return all(len(same) == 1 for same in values.values())


def complete_groups(cells: Sequence[CellResult]) -> list[ConditionGroup]:
    """Return a study's condition groups, each with what other groups measured.

    They have no checks yet: `checks.checked_groups` returns them with their checks.
    """
    groups = group(cells)
    return [replace(group, elsewhere=_elsewhere(group, groups)) for group in groups]


def _elsewhere(
    group: ConditionGroup, groups: Sequence[ConditionGroup]
) -> dict[Place, int]:
    """Return the places that other groups of the same workload's name and device measured."""
    return {
        row.place: number
        for number, other in enumerate(groups, start=1)
        if other is not group and other.kind == group.kind
        for row in other.timed
    }
