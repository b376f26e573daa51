"""The lines under a table that say what is not there, and why."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from hpml_jobs.core.cell import Cell, Device
from hpml_jobs.report.merge.cells import CellResult
from hpml_jobs.report.merge.entries import BASELINE_ROW, Entry, Place, Row, row_of, row_order
from hpml_jobs.report.merge.grouping import ConditionGroup
from hpml_jobs.report.text.captions import row_label, unit
from hpml_jobs.report.text.numbers import seconds


def absences(
    alike: ConditionGroup,
    entries: Sequence[Entry],
    places: Collection[Place],
    device: Device,
    elsewhere: Mapping[Place, int],
) -> list[str]:
    """A line for every cell at these places without a number, then for what was not asked for.

    `elsewhere` tells in which other group of unlike records a place has a number.
    """
    timed = {(entry.row, entry.batch_per_gpu) for entry in entries if entry.timing}
    asked = {(entry.row, entry.batch_per_gpu) for entry in entries}
    lines = []
    for found in alike.cells:
        cell = found.cell
        if cell is None or found.measured or (place := (row_of(cell), cell.batch)) not in places:
            continue
        reason = f"{found.reason} [{found.slug}]"
        if found.slug in alike.uncertain:
            reason += "; its group is known when it has a record"
        if place in timed:
            reason += "; the other runs stand"
        lines.append(f"{_subject(cell, place in timed, device)}: {reason}")
    return lines + _not_asked(set(places) - asked, device, elsewhere)


def _subject(cell: Cell, others_stand: bool, device: Device) -> str:
    if row_of(cell) == BASELINE_ROW and not others_stand:
        return _no_baseline(cell.batch, device)
    seed = f", seed {cell.seed}" if cell.seed else ""
    repeat = f", repeat {cell.repeat}" if cell.repeat or (others_stand and not seed) else ""
    return f"{row_label(row_of(cell), device)} at batch {cell.batch}{seed}{repeat}"


def _no_baseline(batch: int, device: Device) -> str:
    return f"no single-{unit(device)} cell at batch {batch}"


def _not_asked(
    places: Collection[Place], device: Device, elsewhere: Mapping[Place, int]
) -> list[str]:
    lines = []
    others = []
    for row, batch in sorted(places, key=lambda place: (row_order(place[0]), place[1])):
        group = elsewhere.get((row, batch))
        why = f"measured under other conditions (group {group})" if group else "not asked for"
        if row == BASELINE_ROW:
            lines.append(f"{_no_baseline(batch, device)}: {why}")
        else:
            others.append((why, (row, batch)))
    return lines + by_reason(others, lambda row: row_label(row, device))


def by_reason(found: Iterable[tuple[str, Place]], label: Callable[[Row], str]) -> list[str]:
    """A line for each reason, with all places it holds for."""
    places: dict[str, list[Place]] = {}
    for why, place in found:
        places.setdefault(why, []).append(place)
    return [f"{why}: {places_text(own, label)}" for why, own in places.items()]


def places_text(places: Iterable[Place], label: Callable[[Row], str]) -> str:
    """Places in words: `2-GPU at batch 32, 128; 4-GPU at batch 512`."""
    rows: dict[Row, dict[int, None]] = {}
    for row, batch in places:
        rows.setdefault(row, {})[batch] = None
    told = (f"{label(row)} at batch {', '.join(map(str, rows[row]))}" for row in rows)
    return "; ".join(told)


def no_bandwidth(entries: Iterable[Entry], device: Device) -> list[str]:
    """A line for every place whose residual is not above zero: no bandwidth follows from it."""
    return [
        f"{row_label(entry.row, device)} at batch {entry.batch_per_gpu}: the residual is "
        f"{seconds(entry.residual.comm_s)} s, not above zero, so no bandwidth follows from it"
        for entry in entries
        if entry.residual is not None and entry.residual.comm_s <= 0
    ]


def warnings(cells: Iterable[CellResult], places: Collection[Place]) -> list[str]:
    """What is to be known about cells that have a number all the same."""
    return [
        f"{found.slug}: {found.warning}"
        for found in cells
        if found.warning and found.cell and (row_of(found.cell), found.cell.batch) in places
    ]
