"""Groups of cells that may share a table: one workload under the same conditions."""

from collections.abc import Iterable, Mapping, Sequence

from hpml_jobs.core.conditions import (
    CODE,
    UNRECORDED,
    WORKLOAD,
    WORKLOAD_CONDITIONS,
    Conditions,
    measured_conditions,
    requested_conditions,
)
from hpml_jobs.core.strategies import Baseline
from hpml_jobs.core.text import NaturalKey, natural_key
from hpml_jobs.report.frame.cells import CellResult
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.rows import make_rows, place_order


def group(
    cells: Iterable[CellResult], baseline: Baseline = Baseline.SINGLE
) -> list[ConditionGroup]:
    """Return the cells whose settings are known in groups that may share tables, in fixed order."""
    measured: dict[tuple[Conditions, Conditions], list[CellResult]] = {}
    others: list[tuple[Conditions, CellResult]] = []
    for result in cells:
        if result.cell is None:
            continue
        key = requested_conditions(result.cell)
        conditions = measured_conditions(result.record) if result.record else None
        if conditions is None:
            others.append((key, result))
        else:
            measured.setdefault((key, conditions), []).append(result)
    recorded_conditions = list(measured)
    uncertain = set()
    for key, result in others:
        homes = [pair for pair in recorded_conditions if pair[0] == key] or [(key, ())]
        for home in homes:
            measured.setdefault(home, []).append(result)
        if len(homes) > 1:
            uncertain.add(result.slug)
    return [
        _condition_group(key, conditions, members, uncertain, baseline)
        for (key, conditions), members in sorted(measured.items(), key=lambda item: _order(item[0]))
    ]


def _order(pair: tuple[Conditions, Conditions]) -> list[list[tuple[str, NaturalKey]]]:
    """Return the order of groups: by the conditions' values, numbers in `args` by their size."""
    return [
        [(name, natural_key(value) if name == "args" else ((), value)) for name, value in part]
        for part in pair
    ]


def _condition_group(
    key: Conditions,
    conditions: Conditions,
    members: Iterable[CellResult],
    uncertain: set[str],
    baseline: Baseline,
) -> ConditionGroup:
    cells = tuple(sorted(members, key=place_order))
    uncertain_here = frozenset(uncertain & {result.slug for result in cells})
    return ConditionGroup(
        requested=key,
        measured_as=conditions,
        cells=cells,
        rows=make_rows(cells, uncertain_here, baseline),
        uncertain=uncertain_here,
        baseline=baseline,
    )


def differences(groups: Sequence[ConditionGroup]) -> dict[str, list[str]]:
    """Return what sets the groups apart: condition -> each group's value, in their order."""
    return differing([group.conditions for group in groups])


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
