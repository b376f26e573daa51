"""Which records may share a table: those of one workload, measured under the same conditions."""

from collections.abc import Iterable, Sequence

from hpml_jobs.core.conditions import (
    UNRECORDED,
    WORKLOAD,
    WORKLOAD_CONDITIONS,
    Conditions,
    asked_conditions,
    measured_conditions,
)
from hpml_jobs.core.value import Value
from hpml_jobs.report.merge.cells import CellResult
from hpml_jobs.report.merge.entries import place_order


class ConditionGroup(Value, frozen=True, kw_only=True):
    """Cells that may share a table.

    `measured_as` is empty where none of them has a record. A cell that ran under unknown conditions
    is in every group it may belong to, and `uncertain` names it where there are several.
    """

    asked: Conditions
    measured_as: Conditions
    cells: tuple[CellResult, ...]
    uncertain: frozenset[str] = frozenset()

    @property
    def conditions(self) -> Conditions:
        """All that agrees."""
        return self.asked + self.measured_as


def group(cells: Iterable[CellResult]) -> list[ConditionGroup]:
    """Cells (those whose cell is known) in groups that may share tables, in a settled order."""
    measured: dict[tuple[Conditions, Conditions], list[CellResult]] = {}
    others: list[tuple[Conditions, CellResult]] = []
    for found in cells:
        if found.cell is None:
            continue
        key = asked_conditions(found.cell)
        conditions = measured_conditions(found.record) if found.record else None
        if conditions is None:
            others.append((key, found))
        else:
            measured.setdefault((key, conditions), []).append(found)
    known = list(measured)
    uncertain = set()
    for key, found in others:
        homes = [pair for pair in known if pair[0] == key] or [(key, ())]
        for home in homes:
            measured.setdefault(home, []).append(found)
        if len(homes) > 1:
            uncertain.add(found.slug)
    return [
        ConditionGroup(
            asked=key,
            measured_as=facts,
            cells=tuple(sorted(members, key=place_order)),
            uncertain=frozenset(uncertain & {member.slug for member in members}),
        )
        for (key, facts), members in sorted(measured.items(), key=lambda item: item[0])
    ]


def differences(groups: Sequence[ConditionGroup]) -> dict[str, list[str]]:
    """What sets groups apart: what -> each group's value, in the groups' order.

    Two workloads differ in nearly everything; there the name says enough.
    """
    tables = [dict(alike.conditions) for alike in groups]
    names = dict.fromkeys(what for table in tables for what in table)
    found = {}
    for what in names:
        values = [table.get(what, UNRECORDED) for table in tables]
        if len({*values} - {UNRECORDED}) > 1 and not _told_by_name(what, tables):
            found[what] = values
    return found


def _told_by_name(what: str, tables: Sequence[dict[str, str]]) -> bool:
    """Whether a difference in `what` is only a difference between workloads of other names."""
    if what not in WORKLOAD_CONDITIONS:
        return False
    values: dict[str, set[str]] = {}
    for table in tables:
        if what in table:
            values.setdefault(table[WORKLOAD], set()).add(table[what])
    return all(len(same) == 1 for same in values.values())
