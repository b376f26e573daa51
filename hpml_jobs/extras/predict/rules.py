"""The forecast of a condition group: its rows as observations, and its targets."""

import shlex
from collections.abc import Iterable, Iterator, Sequence

from hpml_jobs.checks.cpus import OVERSUBSCRIBED
from hpml_jobs.checks.result import names
from hpml_jobs.core.check_result import Affected, Level
from hpml_jobs.core.cluster import Cluster, Launcher
from hpml_jobs.core.conditions import CPU_COUNT
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.extras.predict.forecast import Forecast, Prediction, Refusal, predict
from hpml_jobs.extras.predict.place import (
    MeasuredPlace,
    Target,
    changed,
    distance,
    series_of,
)
from hpml_jobs.extras.predict.question import Question, targets_of
from hpml_jobs.report.frame.builder import GroupContext
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row
from hpml_jobs.study.study import command_with, commands_of

ALL_MEASURED = (
    "every place of the question was measured (collect shows it); ask for another gpus="
)

FROM_RATES = (
    "predicted from rates alone: docs/predict.md has the error of this on published "
    "tables (mean 3 % in a node, 5 % across nodes)"
)

FULL_HOST = (
    "the measured host has CPUs for {most} processes: no larger size is predicted; "
    "gpus=N predicts N processes on several such hosts"
)

OF_TOKENS = (
    "a batch counts sequences of unreported length, so the time of an iteration is not known; "
    "seconds of --json are those of GPUs x batch tokens"
)

UNKNOWN_NODES = (
    "it is not known how many GPUs a node has: {most} are assumed, the most that were measured; "
    "give predict cluster.gpus_per_node=N, or the imported file a column gpus_per_node"
)

EVERYTHING = Question()
"""The next sizes beyond the measured ones, at the measured batches."""


def forecast(
    group: ConditionGroup,
    cluster: Cluster | None = None,
    commands: Sequence[str] = (),
    question: Question = EVERYTHING,
) -> Forecast:
    """Return what a group's cells say of places that were not measured.

    `cluster` says how many GPUs a node has, `commands` submitted the study.

    Raises:
        UsageError: the question does not fit the group.
    """
    measured = observations(group)
    conditions, commands = group.conditions, commands_of(commands, group.a_cell.script)
    notes = tuple(_notes(group, measured))
    if not series_of(measured):
        return Forecast(
            conditions=conditions,
            observations=measured,
            refusals=_without_series(measured, cluster, commands),
            notes=notes,
        )
    per_node = gpus_per_node(group, measured, question, cluster)
    if per_node is None:
        per_node = max(cell.gpus_per_node for cell in measured)
        if question.nodes is None:
            notes += (UNKNOWN_NODES.format(most=per_node),)
        else:
            per_node = max(per_node, *question.gpus, 1)

    def command(place: Target) -> str | None:
        return command_of(place, cluster, commands)

    targets = targets_of(question, measured, per_node, command)
    kept = targets if question.names_size else _on_host(group, measured, targets)
    if len(kept) < len(targets):
        notes += (FULL_HOST.format(most=per_node),)
    answers = predict(measured, kept, command)
    predictions = tuple(answer for answer in answers if isinstance(answer, Prediction))
    if not targets:
        notes = (ALL_MEASURED, *notes)
    if predictions:
        notes += (FROM_RATES,)
        if group.a_cell.workload.samples_are_tokens:
            notes += (OF_TOKENS,)
    return Forecast(
        conditions=conditions,
        observations=measured,
        predictions=predictions,
        refusals=tuple(answer for answer in answers if isinstance(answer, Refusal)),
        notes=notes,
    )


def observations(group: ConditionGroup) -> tuple[MeasuredPlace, ...]:
    """Return the rows of a group as observations.

    Left out are those whose times a check calls wrong, and processes that took turns on CPUs.
    """
    of_rows = []
    for row in group.timed:
        if _is_usable(group, row):
            cells = [
                record.slug for record in group.counted_records(row, Affected.TIME)
            ]
            of_rows.append(observation(row, cells, is_imported=group.imported))
    return tuple(of_row for of_row in of_rows if of_row is not None)


def observation(
    row: Row, cells: Sequence[str], *, is_imported: bool
) -> MeasuredPlace | None:
    """Return what a row measured in these cells; None without a duration of an iteration.

    The rate of an imported row is enough for one. Where its samples are tokens, a batch counts
    sequences of unreported length, and it is the time of GPUs x batch tokens: in proportion to an
    iteration, so that rates are right.
    """
    timing = row.timing
    if timing is None:
        return None
    step_s = timing.step_s
    if step_s is None and is_imported and timing.samples:
        step_s = row.global_batch * timing.epoch_s / timing.samples
    if step_s is None:
        return None
    return MeasuredPlace(
        place=row.place,
        accumulate=row.accumulate,
        step_s=step_s,
        runs=timing.runs,
        cells=tuple(cells),
    )


def _is_usable(group: ConditionGroup, row: Row) -> bool:
    if group.worst(row, Affected.TIME) is Level.FAIL:
        return False
    checks = (result for slug in row.cells for result in group.checks.get(slug, ()))
    return not any(
        result.check == OVERSUBSCRIBED and result.level is not Level.PASS
        for result in checks
    )


def epoch_s(group: ConditionGroup, forecast: Forecast, prediction: Prediction) -> float:
    """Return the time of a predicted epoch.

    It is as much longer or shorter than that of the nearest measured cell, of the same strategy if
    there is one, as samples per second are fewer or more.
    """
    target = prediction.target
    epochs_s = {row.place: row.timing.epoch_s for row in group.timed if row.timing}
    alike = [o for o in forecast.observations if o.kind.path == target.kind.path]
    of_strategy = [o for o in alike if o.strategy is target.strategy]

    def nearness(observation: MeasuredPlace) -> tuple[float, int]:
        return distance(target, observation), -observation.gpus

    near = min(of_strategy or alike, key=nearness)
    samples_per_s = near.samples / near.step_s
    return epochs_s[near.place] * samples_per_s / prediction.samples_per_s


def gpus_per_node(
    group: ConditionGroup,
    measured: Sequence[MeasuredPlace],
    question: Question,
    cluster: Cluster | None,
) -> int | None:
    """Return how many GPUs a node has; None where neither question, cluster nor cells say it.

    Of processes on CPUs it is as many as have CPUs of their own.

    Raises:
        UsageError: the question says fewer than a node had.
    """
    most = max((cell.gpus_per_node for cell in measured), default=1)
    if question.gpus_per_node is not None:
        _refuse_fewer(question.gpus_per_node, most, group)
        return question.gpus_per_node
    cell = group.a_cell
    if cell.device is Device.CPU and not group.imported:
        cpus = group.conditions.get(CPU_COUNT, "")
        return max(most, int(cpus) // cell.threads) if cpus.isdecimal() else None
    of_node = _gpus_of_node(group, cluster)
    if of_node is not None:
        return max(most, of_node)
    return most if any(cell.nodes > 1 for cell in measured) else None


def _on_host(
    group: ConditionGroup, measured: Iterable[MeasuredPlace], targets: list[Target]
) -> list[Target]:
    """Return the targets without those beyond the CPUs of a host, if only one was measured."""
    cpus_are_known = group.conditions.get(CPU_COUNT, "").isdecimal()
    is_on_cpus = group.device is Device.CPU and not group.imported and cpus_are_known
    if not is_on_cpus or any(cell.nodes > 1 for cell in measured):
        return targets
    return [target for target in targets if target.nodes == 1]


def _refuse_fewer(per_node: int, most: int, group: ConditionGroup) -> None:
    """Refuse fewer GPUs per node than the most that were measured on one."""
    if per_node < most:
        key = f"gpus_per_node={per_node}"
        remedy = f": import the file again with {key}" if group.imported else ""
        raise UsageError(f"cluster.{key}: {most} on a node were measured{remedy}")


def _gpus_of_node(group: ConditionGroup, cluster: Cluster | None) -> int | None:
    """Return how many GPUs of this type the cluster's nodes have, or a node of imported rows."""
    gpu_type = group.a_cell.gpu_type
    if cluster is not None and gpu_type in cluster.gpu_types:
        return cluster.gpu_types[gpu_type]
    records = [result.record for result in group.cells if result.record is not None]
    rows = [record.imported for record in records if record.imported is not None]
    most = max((row.gpus_per_node or 1 for row in rows), default=1)
    return most if most > 1 else None


def _has_grid(commands: Sequence[str]) -> bool:
    """Return whether the last submission's command names a grid, whose blocks may set any key."""
    words = shlex.split(" ".join(commands[-1:]))
    return any(word.startswith("grid=") for word in words)


def command_of(
    place: Target, cluster: Cluster | None, commands: Sequence[str]
) -> str | None:
    """Return the command that submits the cell of a place; None where nothing can."""
    keys: dict[str, object] = {"gpus": place.gpus, "batch": place.batch}
    if place.nodes > 1:
        if cluster and cluster.launcher is Launcher.LOCAL and not cluster.hosts:
            return None
        keys["nodes"] = place.nodes
    of_grid = _has_grid(commands)  # which may sweep both
    if place.accumulate > 1 or of_grid:
        keys["accumulate"] = place.accumulate
    default = Strategy.DDP if place.gpus > 1 else Strategy.SINGLE
    if place.strategy is not default or (of_grid and place.gpus > 1):
        keys["strategy"] = place.strategy.value
    return command_with(commands, keys, without=("accumulate",))


def _notes(group: ConditionGroup, measured: Sequence[MeasuredPlace]) -> Iterator[str]:
    """Yield which cells of the group are not used, and which a check doubts."""
    used = {slug for cell in measured for slug in cell.cells}
    failed = [row for row in group.timed if not used & {*row.cells}]
    if failed:
        yield (
            "not used, because a data-quality check failed, processes shared CPUs, or no iteration "
            f"was timed: {names(_slugs(failed))}"
        )
    doubtful = [
        row
        for row in group.timed
        if row not in failed and group.doubts(row, Affected.TIME)
    ]
    if doubtful:
        yield (
            f"a data-quality check warns of the time of {names(_slugs(doubtful))} (record shows "
            "the reason)"
        )


def _slugs(rows: Iterable[Row]) -> Iterator[str]:
    return (slug for row in rows for slug in row.cells)


def _without_series(
    measured: Sequence[MeasuredPlace], cluster: Cluster | None, commands: Sequence[str]
) -> tuple[Refusal, ...]:
    """Return why nothing can be predicted without a cell on several GPUs; () without any cell."""
    if not measured:
        return ()
    first = measured[0]
    path = first.kind.path
    target = changed(first, gpus=2, strategy=Strategy.DDP, treatment=path)
    command = command_of(target, cluster, commands)
    remedy = "" if command else f": measure gpus=2 batch={target.batch}"
    reason = f"no cell on several GPUs has a number, so no exchange is known{remedy}"
    return (Refusal(target=target, reason=reason, command=command),)


def next_sizes(context: GroupContext) -> Forecast:
    """Return the forecast of the next two doublings of GPUs."""
    return forecast(context.group, context.cluster, context.commands)
