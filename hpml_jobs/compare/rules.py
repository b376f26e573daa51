"""Two studies cell by cell: which cells are faster, which slower, and what became slower.

The old one is the reference, the new one is compared with it. Rules: docs/compare.md.
"""

from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from statistics import median
from typing import NamedTuple

from hpml_jobs.compare.power import smallest_difference
from hpml_jobs.compare.reference import (
    CLOCKS,
    Reference,
    ReferenceCell,
    ReferenceGroup,
    Work,
)
from hpml_jobs.core.conditions import (
    CODE,
    CONDITIONS,
    CPU_COUNT,
    CPU_MODEL,
    GPU_MODEL,
    PARAMETERS,
    UNRECORDED,
)
from hpml_jobs.core.place import Place, setup_order
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.value import Value
from hpml_jobs.results.decision import (
    LEAST_GAP,
    Comparison,
    Decision,
    Ratio,
    compare,
    scatter,
)
from hpml_jobs.results.groups import differing

PARTS = {
    "compute_s": "compute",
    "comm_exposed_s": "exposed communication",
    "stall_s": "waiting for data",
}
"""The parts of an epoch that say what became slower."""


class ConditionKind(StrEnum):
    """What a condition is about, the most serious first."""

    HARDWARE = "hardware"
    WORK = "work"
    SOFTWARE = "software"
    SETTING = "settings"


_HARDWARE = frozenset({"device", GPU_MODEL, CPU_MODEL, CPU_COUNT})
_SETTINGS = frozenset(
    {"requested GPU type", "measured", "epochs", "threads per process"}
    | {"DataLoader workers per process"}
)
_SOFTWARE = (
    frozenset(condition.name for condition in CONDITIONS) - _HARDWARE - {PARAMETERS}
)


def kind_of(condition: str) -> ConditionKind:
    """Return what a condition is about; conditions of the workload are the work.

    >>> [kind_of(name).value for name in ("GPU model", "torch", "your code a.py", "lr", "measured")]
    ['hardware', 'software', 'software', 'work', 'settings']
    """
    if condition in _HARDWARE:
        return ConditionKind.HARDWARE
    if condition in _SOFTWARE or condition.startswith(CODE):
        return ConditionKind.SOFTWARE
    return ConditionKind.SETTING if condition in _SETTINGS else ConditionKind.WORK


class ComparedCell(Value, frozen=True, kw_only=True, dict=True):
    """The runs at one place of both studies."""

    old: ReferenceCell
    new: ReferenceCell

    @property
    def place(self) -> Place:
        """Their setup and batch."""
        return self.new.place

    @property
    def is_measured(self) -> bool:
        """Whether both have a number."""
        return bool(self.old.runs and self.new.runs)

    @property
    def failed(self) -> tuple[str, ...]:
        """The checks that failed on either side: the runs decide nothing."""
        return tuple(dict.fromkeys((*self.old.failed, *self.new.failed)))

    @property
    def is_doubtful(self) -> bool:
        """Whether a check fails or warns of the time on either side."""
        return self.old.is_doubtful or self.new.is_doubtful

    @cached_property
    def _comparison(self) -> Comparison:
        return compare(self.new.epochs_s, self.old.epochs_s)

    @cached_property
    def ratio(self) -> Ratio:
        """The ratio of the new times to the old ones; below 4 runs that of the medians."""
        if self._comparison.decision is Decision.TOO_FEW:
            return Ratio(median(self.new.epochs_s) / median(self.old.epochs_s), None)
        return self._comparison.ratio

    @property
    def p(self) -> float | None:
        """The p of the test; None with too few runs."""
        return self._comparison.p

    @cached_property
    def decision(self) -> Decision | None:
        """What the runs say; None if a check failed."""
        return None if self.failed else self._comparison.decision

    @cached_property
    def noise(self) -> float | None:
        """The scatter of both cells' runs; None if neither has two runs."""
        return scatter(self.old.epochs_s, self.new.epochs_s)

    @property
    def smallest_difference(self) -> float | None:
        """The true difference, as a share, that these runs show with a power of 80 %."""
        if self.failed or self.noise is None:
            return None
        return smallest_difference(len(self.new.runs), len(self.old.runs), self.noise)

    def is_slower_than(self, limit: float) -> bool:
        """Return whether the runs say that the new cell is slower by more than a share."""
        return self.decision is Decision.SLOWER and self.ratio.estimate > 1 + limit

    def could_hide(self, difference: float) -> bool:
        """Return whether the new cell may be slower by more than a share, and the runs too few.

        A cell that is known to be faster, or slower by more, hides nothing.
        """
        if self.decision in (None, Decision.FASTER, Decision.TOO_FEW):
            return False
        is_visible = (self.smallest_difference or 0) <= difference
        return not is_visible and not self.is_slower_than(difference)

    def changes(self) -> dict[str, float]:
        """Return by part of the epoch the change of its median, in seconds, where both have it."""
        pairs = {
            name: (self.old.median_s(name), self.new.median_s(name)) for name in PARTS
        }
        return {
            name: new - old
            for name, (old, new) in pairs.items()
            if old is not None and new is not None
        }


class ComparedGroup(NamedTuple):
    """Cells of a group of each study; `differences` are the conditions with the two values."""

    old: ReferenceGroup
    new: ReferenceGroup
    cells: tuple[ComparedCell, ...]
    differences: dict[str, tuple[str, str]]

    @property
    def measured(self) -> list[ComparedCell]:
        """The cells with a number in both."""
        return [cell for cell in self.cells if cell.is_measured]

    @property
    def by_kind(self) -> dict[ConditionKind, dict[str, tuple[str, str]]]:
        """The differences by what they are about, the most serious first."""
        kinds = {}
        for kind in ConditionKind:
            of_kind = {
                name: values
                for name, values in self.differences.items()
                if kind_of(name) is kind
            }
            if of_kind:
                kinds[kind] = of_kind
        return kinds

    @property
    def unrecorded(self) -> dict[str, list[str]]:
        """The hardware and software conditions that one side does not have: `old`, `new`."""
        conditions_of_both = dict.fromkeys((*self.old.conditions, *self.new.conditions))
        kinds = (ConditionKind.HARDWARE, ConditionKind.SOFTWARE)
        names = [name for name in conditions_of_both if kind_of(name) in kinds]
        unrecorded = {}
        for side, conditions in (
            ("old", self.old.conditions),
            ("new", self.new.conditions),
        ):
            absent = [name for name in names if name not in conditions]
            if absent:
                unrecorded[side] = absent
        return unrecorded

    @property
    def other_clocks(self) -> dict[str, list[ComparedCell]]:
        """The clocks and limits of GPUs that differ by more than 2 %, with the cells."""
        cells_by_name = {}
        for name in CLOCKS:
            cells = [
                cell for cell in self.measured if _differ(cell.old, cell.new, name)
            ]
            if cells:
                cells_by_name[name] = cells
        return cells_by_name

    @property
    def without_clocks(self) -> bool:
        """Whether GPUs were measured without their clocks on either side."""
        return self.new.device is Device.CUDA and any(
            not (cell.old.clocks and cell.new.clocks) for cell in self.measured
        )


def _differ(old: ReferenceCell, new: ReferenceCell, clock: str) -> bool:
    old_value = old.clocks.get(clock)
    new_value = new.clocks.get(clock)
    if not old_value or not new_value:
        return False
    return max(old_value / new_value, new_value / old_value) > 1 + LEAST_GAP


class StudyComparison(NamedTuple):
    """A new study against an old one; cells with a number in only one of them are listed."""

    old: Reference
    new: Reference
    groups: tuple[ComparedGroup, ...]
    only_old: tuple[tuple[ReferenceGroup, ReferenceCell], ...]
    only_new: tuple[tuple[ReferenceGroup, ReferenceCell], ...]

    @property
    def cells(self) -> list[ComparedCell]:
        """All cells with a number in both."""
        return [cell for group in self.groups for cell in group.measured]

    @property
    def unmeasured(self) -> list[tuple[ComparedGroup, ComparedCell]]:
        """The cells that both have, of which one has no number."""
        return [
            (g, cell) for g in self.groups for cell in g.cells if not cell.is_measured
        ]

    @property
    def unlike_hardware(self) -> list[str]:
        """The hardware conditions that differ in any group; the clocks too."""
        names = dict.fromkeys(
            name
            for group in self.groups
            for name in group.by_kind.get(ConditionKind.HARDWARE, {})
        )
        clocks = dict.fromkeys(
            name.partition(",")[0]
            for group in self.groups
            for name in group.other_clocks
        )
        return [*names, *clocks]


def compare_studies(old: Reference, new: Reference) -> StudyComparison:
    """Compare the cells at the same place with the same workload and samples per epoch.

    A cell that the old study has under several conditions is compared with the most similar ones.
    """
    places: dict[tuple[Work, Place], list[tuple[int, ReferenceCell]]] = {}
    for number, cell in _cells(old):
        places.setdefault((old.groups[number].work, cell.place), []).append(
            (number, cell)
        )
    pairs: dict[tuple[int, int], list[ComparedCell]] = {}
    shared = set()
    for new_number, cell in _cells(new):
        group = new.groups[new_number]
        candidates = places.get((group.work, cell.place))
        if candidates:
            number, old_cell = min(
                candidates, key=lambda pair: _unlikeness(old.groups[pair[0]], group)
            )
            compared = ComparedCell(old=old_cell, new=cell)
            pairs.setdefault((number, new_number), []).append(compared)
            shared.add((group.work, cell.place))
    return StudyComparison(
        old=old,
        new=new,
        groups=tuple(
            ComparedGroup(
                old.groups[first],
                new.groups[second],
                tuple(cells),
                _differences(old.groups[first], new.groups[second]),
            )
            for (first, second), cells in sorted(
                pairs.items(), key=lambda item: item[0]
            )
        ),
        only_old=_unshared(old, shared),
        only_new=_unshared(new, shared),
    )


def _cells(reference: Reference) -> Iterator[tuple[int, ReferenceCell]]:
    """Yield all cells with the number of their group; without numbers only if no other has any."""
    measured = {
        (group.work, cell.place)
        for group in reference.groups
        for cell in group.cells
        if cell.runs
    }
    for number, group in enumerate(reference.groups):
        for cell in group.cells:
            if cell.runs or (group.work, cell.place) not in measured:
                measured.add((group.work, cell.place))
                yield number, cell


def _unlikeness(old: ReferenceGroup, new: ReferenceGroup) -> tuple[int, ...]:
    """Return the number of differences by kind, the most serious first."""
    kinds = [kind_of(name) for name in _differences(old, new)]
    return tuple(kinds.count(kind) for kind in ConditionKind)


def _differences(
    old: ReferenceGroup, new: ReferenceGroup
) -> dict[str, tuple[str, str]]:
    pairs = differing([old.conditions, new.conditions])
    return {
        name: (first, second)
        for name, (first, second) in pairs.items()
        if UNRECORDED not in (first, second)
    }


def _unshared(
    reference: Reference, shared: set[tuple[Work, Place]]
) -> tuple[tuple[ReferenceGroup, ReferenceCell], ...]:
    cells = {
        (group.work, cell.place): (group, cell)
        for group in reference.groups
        for cell in group.cells
        if cell.runs and (group.work, cell.place) not in shared
    }
    return tuple(
        sorted(
            cells.values(),
            key=lambda pair: (setup_order(pair[1].place.setup), pair[1].batch),
        )
    )
