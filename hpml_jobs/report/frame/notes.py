"""Notes under a table: what is missing from it, and why."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.measurements import Role, Step
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import counted
from hpml_jobs.report.frame.captions import row_label, unit
from hpml_jobs.report.frame.cells import CellResult
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.left_out import LeftOut
from hpml_jobs.report.frame.rows import Place, Row, Setup, place_of, setup_order


def absences(group: ConditionGroup, rows: Sequence[Row], places: Collection[Place]) -> list[str]:
    """Return a line for every cell at these places without a number, then for cells not requested.

    `rows` are those of the table.
    """
    timed = {row.place for row in rows if row.timing}
    requested = {row.place for row in rows}
    lines = []
    for result in group.cells:
        cell = result.cell
        if cell is None or result.measured or (place := place_of(cell)) not in places:
            continue
        reason = f"{result.reason} [{result.slug}]"
        if result.slug in group.uncertain:
            reason += "; it is assigned to a group when it has a record"
        if place in timed:
            reason += "; the other runs are used"
        subject = _subject(cell, group.device, has_other_runs=place in timed)
        lines.append(f"{subject}: {reason}")
    return lines + _not_requested(set(places) - requested, group.device, group.elsewhere)


def _subject(cell: Cell, device: Device, *, has_other_runs: bool) -> str:
    setup = place_of(cell).setup
    if setup.is_baseline and not has_other_runs:
        return _no_baseline(place_of(cell), device)
    seed = f", seed {cell.seed}" if cell.seed else ""
    repeat = f", repeat {cell.repeat}" if cell.repeat or (has_other_runs and not seed) else ""
    return f"{row_label(setup, device)} at batch {cell.batch}{seed}{repeat}"


def _no_baseline(place: Place, device: Device) -> str:
    path = f" ({place.setup.path})" if place.setup.path else ""
    return f"no single-{unit(device)} cell{path} at batch {place.batch_per_gpu}"


def _not_requested(
    places: Collection[Place], device: Device, elsewhere: Mapping[Place, int]
) -> list[str]:
    lines = []
    others = []
    for place in sorted(places, key=lambda place: (setup_order(place.setup), place.batch_per_gpu)):
        group = elsewhere.get(place)
        why = f"measured under other conditions (group {group})" if group else "not requested"
        if place.setup.is_baseline:
            lines.append(f"{_no_baseline(place, device)}: {why}")
        else:
            others.append((why, place))
    return lines + by_reason(others, lambda setup: row_label(setup, device))


def by_reason(reasons: Iterable[tuple[str, Place]], label: Callable[[Setup], str]) -> list[str]:
    """Return a line for each reason, with all places that it holds for."""
    places: dict[str, list[Place]] = {}
    for reason, place in reasons:
        places.setdefault(reason, []).append(place)
    return [f"{reason}: {places_text(places[reason], label)}" for reason in places]


def places_text(places: Iterable[Place], label: Callable[[Setup], str]) -> str:
    """Return places in words: `2-GPU at batch 32, 128; 4-GPU at batch 512`."""
    batches: dict[Setup, dict[int, None]] = {}
    for place in places:
        batches.setdefault(place.setup, {})[place.batch_per_gpu] = None
    return "; ".join(
        f"{label(setup)} at batch {', '.join(map(str, batches[setup]))}" for setup in batches
    )


def no_bandwidth(rows: Iterable[Row], device: Device) -> list[str]:
    """Return lines on rows without a bandwidth: a residual of zero or less, or unknown sizes."""
    rows = list(rows)
    timings = [row.timing for row in rows if row.residual is not None and row.timing is not None]
    missing = {
        "parameters": any(timing.gradient_bytes is None for timing in timings),
        "images (or iterations)": any(timing.iterations is None for timing in timings),
    }
    names = " and ".join(name for name, is_missing in missing.items() if is_missing)
    unknown = [f"no bandwidth without the number of {names}, which the import does not give"]
    not_positive = by_reason(
        (
            ("no bandwidth, since the residual is not above zero", row.place)
            for row in rows
            if row.residual is not None and row.residual.comm_s <= 0
        ),
        lambda setup: row_label(setup, device),
    )
    return [*(unknown if names else ()), *not_positive]


def left_out_runs(rows: Iterable[Row], device: Device) -> list[str]:
    """Return a line for every row that leaves runs out of its medians, with the first reason."""
    lines = []
    for row in rows:
        where = f"{row_label(row.setup, device)} at batch {row.batch_per_gpu}"
        by_role: dict[Role | Step, list[LeftOut]] = {}
        for run in row.left_out:
            by_role.setdefault(run.role, []).append(run)
        total = len(row.runs) + len(by_role.get(Role.TIMED, ()))
        lines += [
            f"{where}: {len(runs)} of {counted(total, 'run')} left out of the medians: "
            f"the {role.value}{' epoch' if isinstance(role, Role) else ''} was disturbed: "
            f"{runs[0].reason}"
            for role, runs in by_role.items()
        ]
    return lines


def warnings(cells: Iterable[CellResult], places: Collection[Place]) -> list[str]:
    """Return the warnings of cells at these places."""
    return [
        f"{result.slug}: {result.warning}"
        for result in cells
        if result.warning and result.cell and place_of(result.cell) in places
    ]
