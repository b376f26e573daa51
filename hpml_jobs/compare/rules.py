"""Two studies cell by cell: which cells are faster, and which slower.

The old one is the reference, the new one is compared with it. Rules: docs/results.md.
"""

from statistics import median
from typing import NamedTuple

from hpml_jobs.compare.reference import (
    Reference,
    ReferenceCell,
    ReferenceGroup,
    Work,
)
from hpml_jobs.core.value import by_key
from hpml_jobs.results.cells import Place
from hpml_jobs.results.conditions import CPU_COUNT, CPU_MODEL, GPU_MODEL, UNRECORDED
from hpml_jobs.results.decision import Comparison, Decision, Ratio, compare
from hpml_jobs.results.groups import differing

HARDWARE = frozenset(
    ("device", GPU_MODEL, CPU_MODEL, CPU_COUNT, "power limit", "memory clock")
)
"""The conditions whose difference the answer begins with."""


class ComparedCell(NamedTuple):
    """The runs at one place of both studies."""

    old: ReferenceCell
    new: ReferenceCell

    @property
    def is_measured(self) -> bool:
        """Whether both have a number."""
        return bool(self.old.runs and self.new.runs)

    @property
    def _comparison(self) -> Comparison:
        return compare(self.new.epochs_s, self.old.epochs_s)

    @property
    def ratio(self) -> Ratio:
        """The ratio of the new times to the old ones; below 4 runs that of the medians."""
        if self._comparison.decision is Decision.TOO_FEW:
            return Ratio(median(self.new.epochs_s) / median(self.old.epochs_s), None)
        return self._comparison.ratio

    @property
    def p(self) -> float | None:
        """The p of the test; None with too few runs."""
        return self._comparison.p

    @property
    def decision(self) -> Decision | None:
        """What the runs say; None if a check failed on either side."""
        has_failed = self.old.failed or self.new.failed
        return None if has_failed else self._comparison.decision


class ComparedGroup(NamedTuple):
    """Cells of a group of each study; `differences` are the conditions with the two values."""

    old: ReferenceGroup
    new: ReferenceGroup
    cells: list[ComparedCell]
    differences: dict[str, list[str]]

    @property
    def measured(self) -> list[ComparedCell]:
        """The cells with a number in both."""
        return [cell for cell in self.cells if cell.is_measured]


Located = tuple[ReferenceGroup, ReferenceCell]
"""A cell with its group."""


class StudyComparison(NamedTuple):
    """A new study against an old one; cells with a number in only one of them are listed."""

    old: Reference
    new: Reference
    groups: list[ComparedGroup]
    only_old: list[Located]
    only_new: list[Located]


def compare_studies(old: Reference, new: Reference) -> StudyComparison:
    """Compare the cells at the same place with the same workload and samples per epoch.

    A cell that the old study has under several conditions is compared with the most similar ones.
    """
    old_places, new_places = _by_place(old), _by_place(new)
    groups: dict[tuple[int, int], ComparedGroup] = {}
    for key, cells in new_places.items():
        for new_group, new_cell in cells if key in old_places else ():
            old_group, old_cell = min(
                old_places[key],
                key=lambda located: len(_differences(located[0], new_group)),
            )
            differences = _differences(old_group, new_group)
            pair = old.groups.index(old_group), new.groups.index(new_group)
            empty = ComparedGroup(old_group, new_group, [], differences)
            compared = groups.setdefault(pair, empty)
            compared.cells.append(ComparedCell(old_cell, new_cell))
    return StudyComparison(
        old,
        new,
        [groups[pair] for pair in sorted(groups)],
        _only_in(old_places, new_places),
        _only_in(new_places, old_places),
    )


Places = dict[tuple[Work, Place], list[Located]]


def _by_place(reference: Reference) -> Places:
    """Return the cells of each place that have numbers; where none has, the first."""
    places = by_key(
        ((group.work, cell.place), (group, cell))
        for group in reference.groups
        for cell in group.cells
    )
    return {
        key: [located for located in cells if located[1].runs] or cells[:1]
        for key, cells in places.items()
    }


def _differences(old: ReferenceGroup, new: ReferenceGroup) -> dict[str, list[str]]:
    """Return the conditions that both have, with different values."""
    pairs = differing([old.conditions, new.conditions])
    return {name: values for name, values in pairs.items() if UNRECORDED not in values}


def _only_in(places: Places, others: Places) -> list[Located]:
    """Return the cells with a number at places that the other study does not have."""
    absent = (cells[0] for key, cells in places.items() if key not in others)
    return [located for located in absent if located[1].runs]
