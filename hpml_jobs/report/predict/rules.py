"""The forecast of a condition group: its cells as observations, its network, its targets."""

from collections.abc import Iterable, Iterator, Sequence

from hpml_jobs.checks import Level
from hpml_jobs.checks.cpus import OVERSUBSCRIBED
from hpml_jobs.checks.result import Affected, names
from hpml_jobs.core.cluster import Cluster, Launcher
from hpml_jobs.core.conditions import CPU_COUNT
from hpml_jobs.core.disturbance import outside_causes, quiet_microbenchmarks
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.measurements import Step
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.training_path import accumulation
from hpml_jobs.predict.forecast import Forecast, Prediction, Refusal, has_messages, predict
from hpml_jobs.predict.network import BusSweep, Network, measured_sweeps
from hpml_jobs.predict.place import Observation, Place, changed, distance, observation, series_of
from hpml_jobs.predict.place import gpus_per_node as imported_gpus_per_node
from hpml_jobs.predict.question import Question, targets_of
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.rows import Row, Setup
from hpml_jobs.study.study import command_with, commands_of, has_grid

ALL_MEASURED = (
    "every place of the question was measured: hpml-jobs collect shows it; ask for another gpus=, "
    "batch= or accumulate="
)

RATES_ONLY = "sweep= is not used: these cells have no messages (protocol=full records them)"

FROM_RATES = (
    "predicted from rates alone: docs/choose_predict.md has the error of this on published "
    "tables (mean 3 % in a node, 5 % across nodes)"
)

OF_TOKENS = (
    "a batch counts sequences of unreported length, so the time of an iteration is not known; "
    "seconds of --json are those of GPUs x batch tokens"
)

IN_NODE_ONLY = "sweep= is not used: it is across nodes, and no prediction is"

MEASURED_HERE = "sweep={name} is not used for collectives that the study measured {where}"

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
    sweep: BusSweep | None = None,
) -> Forecast:
    """Return what a group's cells say of places that were not measured.

    `cluster` says how many GPUs a node has, `commands` submitted the study, `sweep` is the content
    of the question's file.

    Raises:
        UsageError: the question does not fit the group.
    """
    measured = observations(group)
    conditions, commands = group.conditions, commands_of(commands, group.a_cell.script)
    notes = tuple(_notes(group, measured))
    if not series_of(measured):
        refusal = _without_series(measured, cluster, commands)
        refusals = (refusal,) if refusal else ()
        return Forecast(
            conditions=conditions, observations=measured, refusals=refusals, notes=notes
        )
    if sweep is not None and Network(measured_sweeps(measured), sweep).measured_where_given:
        where = "across nodes" if sweep.crosses_nodes else "inside a node"
        notes += (MEASURED_HERE.format(name=sweep.name, where=where),)
    per_node = gpus_per_node(group, measured, question, cluster)
    if per_node is None:
        per_node = max(cell.gpus_per_node for cell in measured)
        if question.nodes is None:
            notes += (UNKNOWN_NODES.format(most=per_node),)
        else:
            per_node = max(per_node, *question.gpus, 1)
    targets = targets_of(question, measured, per_node)
    if not targets:
        notes = (ALL_MEASURED, *notes)
    elif sweep and sweep.crosses_nodes and all(target.nodes == 1 for target in targets):
        notes += (IN_NODE_ONLY,)
    series = series_of(measured)
    if not all(has_messages(series[target.kind]) for target in targets):
        notes += (FROM_RATES,)
        notes += (OF_TOKENS,) if group.a_cell.workload.samples_are_tokens else ()
        notes += (RATES_ONLY,) if sweep else ()
    made = predict(measured, targets, sweep, lambda place: command_of(place, cluster, commands))
    return Forecast(
        conditions=conditions,
        observations=measured,
        predictions=tuple(item for item in made if isinstance(item, Prediction)),
        refusals=tuple(item for item in made if isinstance(item, Refusal)),
        notes=notes,
    )


def observations(group: ConditionGroup) -> tuple[Observation, ...]:
    """Return the rows of a group as observations."""
    made = (observation(records) for records in usable_records(group))
    return tuple(item for item in made if item is not None)


def usable_records(group: ConditionGroup) -> list[list[Record]]:
    """Return the records of each row that predictions may rest on.

    Left out are those whose times a check calls wrong, and processes that took turns on CPUs.
    """
    rows = (row for row in group.timed if _is_usable(group, row))
    return [group.counted_records(row, Affected.TIME) for row in rows]


def _is_usable(group: ConditionGroup, row: Row) -> bool:
    if group.worst(row, Affected.TIME) is Level.FAIL:
        return False
    checks = (result for slug in row.cells for result in group.checks.get(slug, ()))
    return not any(
        result.check == OVERSUBSCRIBED and result.level is not Level.PASS for result in checks
    )


def setup_of(place: Place) -> Setup:
    """Return the setup of a row at this place: its path and treatment name the accumulation.

    >>> place = Place(gpus=4, batch=32, strategy=Strategy.DDP, accumulate=2, treatment="scaled")
    >>> setup_of(place)[3:]
    ('accumulate 2, scaled', 'accumulate 2')
    """
    rest = place.treatment.removeprefix(place.path).removeprefix(", ")
    path = ", ".join(filter(None, (place.path, accumulation(place.accumulate))))
    return Setup(
        place.gpus, place.nodes, place.strategy, ", ".join(filter(None, (path, rest))), path
    )


def epoch_s(group: ConditionGroup, made: Forecast, prediction: Prediction) -> float | None:
    """Return the time of a predicted epoch; None where no measured epoch is near it.

    It is as much longer or shorter than that of the nearest measured cell, of the same strategy if
    there is one, as samples per second are fewer or more.
    """
    rows = {slug: row for row in group.timed for slug in row.cells}
    alike = [o for o in made.observations if o.cells and o.path == prediction.target.path]
    alike = [o for o in alike if o.strategy is prediction.target.strategy] or alike
    near = min(alike, key=lambda o: (distance(prediction.target, o), -o.gpus), default=None)
    row = rows.get(near.cells[0]) if near else None
    if near is None or row is None or row.timing is None:
        return None
    return row.timing.epoch_s * (near.samples / near.step_s) / prediction.samples_per_s


def gpus_per_node(
    group: ConditionGroup,
    measured: Sequence[Observation],
    question: Question,
    cluster: Cluster | None,
) -> int | None:
    """Return how many GPUs a node has; None where neither question, cluster nor cells say it.

    Of processes on CPUs it is as many as have CPUs of their own.

    Raises:
        UsageError: the question says fewer than a node had.
    """
    records = [result.record for result in group.cells if result.record is not None]
    of_rows = imported_gpus_per_node(records) or 1
    most = max((cell.gpus_per_node for cell in measured), default=1)
    if question.gpus_per_node is not None:
        if question.gpus_per_node < most:
            given = f"gpus_per_node={question.gpus_per_node}"
            remedy = f": import the file again with {given}" if group.imported else ""
            raise UsageError(f"cluster.{given}: {most} on a node were measured{remedy}")
        return question.gpus_per_node
    cell = group.a_cell
    if cell.device is Device.CPU and not group.imported:
        cpus = group.conditions.get(CPU_COUNT, "")
        return max(most, int(cpus) // cell.threads) if cpus.isdecimal() else None
    of_type = cluster.gpu_types.get(cell.gpu_type or "") if cluster else None
    if of_type is not None:
        return max(most, of_type)
    if of_rows > 1:
        return max(most, of_rows)
    return most if any(cell.nodes > 1 for cell in measured) else None


def command_of(place: Place, cluster: Cluster | None, commands: Sequence[str]) -> str | None:
    """Return the command that submits the cell of a place; None where nothing can."""
    is_local = cluster is not None and cluster.launcher is Launcher.LOCAL and not cluster.hosts
    if place.nodes > 1 and is_local:
        return None
    keys: dict[str, object] = {"gpus": place.gpus, "batch": place.batch}
    keys |= {"nodes": place.nodes} if place.nodes > 1 else {}
    of_grid = has_grid(commands)  # which may sweep both
    keys |= {"accumulate": place.accumulate} if place.accumulate > 1 or of_grid else {}
    default = Strategy.DDP if place.gpus > 1 else Strategy.SINGLE
    is_usual = place.strategy is default and not (of_grid and place.gpus > 1)
    keys |= {} if is_usual else {"strategy": place.strategy.value}
    return command_with(commands, keys, without=("accumulate",))


def _notes(group: ConditionGroup, measured: Sequence[Observation]) -> Iterator[str]:
    """Yield which cells of the group are not used, and which a check doubts."""
    used = {slug for cell in measured for slug in cell.cells}
    failed = [row for row in group.timed if not used & {*row.cells}]
    if failed:
        yield (
            "not used, because a data-quality check failed, processes shared CPUs, or no iteration "
            f"was timed: {names(_slugs(failed))}"
        )
    doubtful = [
        row for row in group.timed if row not in failed and group.doubts(row, Affected.TIME)
    ]
    if doubtful:
        yield (
            f"a data-quality check warns of the time of {names(_slugs(doubtful))}: "
            "hpml-jobs record shows the reason"
        )
    slowed = [
        record.slug
        for row in group.timed
        for record in quiet_microbenchmarks(group.records(row))
        if outside_causes(record, Step.MICROBENCHMARK)
    ]
    if slowed:
        yield (
            f"other programs disturbed the microbenchmark of {names(slowed)}: messages are priced "
            "too high"
        )


def _slugs(rows: Iterable[Row]) -> Iterator[str]:
    return (slug for row in rows for slug in row.cells)


def _without_series(
    measured: Sequence[Observation], cluster: Cluster | None, commands: Sequence[str]
) -> Refusal | None:
    """Return why nothing can be predicted without a cell on several GPUs; None without any cell."""
    if not measured:
        return None
    target = changed(measured[0], gpus=2, strategy=Strategy.DDP, treatment=measured[0].path)
    command = command_of(target, cluster, commands)
    remedy = "" if command else f": measure gpus=2 batch={target.batch}"
    return Refusal(
        target=target,
        reason=f"no cell on several GPUs has a number, so no exchange is known{remedy}",
        command=command,
    )
