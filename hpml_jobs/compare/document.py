"""The comparison of two studies as text and values."""

from typing import Any, NamedTuple

from hpml_jobs.compare import table, words
from hpml_jobs.compare.reference import (
    EPOCH,
    Reference,
    ReferenceCell,
    ReferenceGroup,
)
from hpml_jobs.compare.rules import (
    PARTS,
    ComparedCell,
    StudyComparison,
    compare_studies,
)
from hpml_jobs.core.conditions import NONE
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.report.frame.table import Table
from hpml_jobs.results.checks.result import names


class GroupText(NamedTuple):
    """A compared group: what was trained, the conditions that differ, and the table."""

    setting: str
    conditions: tuple[str, ...]
    table: Table


class ComparisonText(NamedTuple):
    """A comparison in words: the answer, a text per group, and the cells of only one study.

    `failure` says why it does not pass the limit; empty if it does, or without a limit. `drift` is
    the change between two submissions of equal code, None if it is not known.
    """

    comparison: StudyComparison
    answer: str
    groups: tuple[GroupText, ...]
    only: tuple[str, ...]
    limit: float | None
    failure: str
    drift: float | None

    @property
    def same_machine(self) -> str:
        """What the machine itself changes between two submissions, in words."""
        return words.drift_text(self.drift, self.limit)

    @property
    def passed(self) -> str:
        """That it passes the limit, in words; empty if it does not, or without a limit."""
        if self.limit is None or self.failure:
            return ""
        return words.gate_success(self.limit)

    @property
    def document(self) -> dict[str, Any]:
        """The comparison as values for programs."""
        comparison = self.comparison
        return {
            "a": comparison.old.study,
            "b": comparison.new.study,
            "answer": self.answer,
            "groups": [
                {
                    "timed": group.new.timed,
                    "setting_a": group.old.setting,
                    "setting_b": group.new.setting,
                    "differences": group.differences,
                    "conditions": text.conditions,
                    "cells": [_values(cell) for cell in group.measured],
                    "notes": text.table.notes,
                }
                for group, text in zip(comparison.groups, self.groups, strict=True)
            ],
            "unlike_hardware": comparison.unlike_hardware,
            "without_number": [_place(cell.new) for _, cell in comparison.unmeasured],
            "only_in_a": [_place(cell) for _, cell in comparison.only_old],
            "only_in_b": [_place(cell) for _, cell in comparison.only_new],
            "drift": self.drift,
            "limit": self.limit,
            "passes": None if self.limit is None else not self.failure,
            "failure": self.failure,
        }


def make_comparison(
    old: Reference, new: Reference, limit: float | None, again: Reference | None = None
) -> ComparisonText:
    """Compare two studies; with a limit, say whether a cell is slower by more than it.

    `again` is the old one measured another time: the limit is at least twice the change between
    these two, which is the machine's.

    Raises:
        HpmlError: no cell has a number in both, or `again` is not the same as the old one.
    """
    comparison = compare_studies(old, new)
    if not comparison.cells and not comparison.unmeasured:
        raise HpmlError(_nothing_shared(old, new))
    drift = None if again is None else _drift(old, again)
    if limit is not None and drift is not None:
        limit = max(limit, 2 * drift)
    groups = tuple(
        GroupText(
            group.new.setting,
            (*table.conditions(group), *table.days(comparison)),
            table.comparison_table(group, limit),
        )
        for group in comparison.groups
    )
    return ComparisonText(
        comparison=comparison,
        answer=words.answer(comparison),
        groups=groups,
        only=(
            *table.only_in("A", comparison.only_old),
            *table.only_in("B", comparison.only_new),
        ),
        limit=limit,
        failure="" if limit is None else words.gate_failure(comparison, limit),
        drift=drift,
    )


def _drift(old: Reference, again: Reference) -> float:
    """Return the largest change of a cell between two submissions of the same."""
    comparison = compare_studies(old, again)
    if not comparison.cells:
        raise HpmlError(_nothing_shared(old, again))
    unlike = {
        name: pair
        for group in comparison.groups
        for name, pair in group.differences.items()
    }
    if unlike:
        listed = "; ".join(
            f"{name}: {' | '.join(pair)}" for name, pair in unlike.items()
        )
        raise HpmlError(
            f"--drift {again.study} is not {old.study} measured again: {listed}"
        )
    return max(words.size(cell) for cell in comparison.cells)


def _nothing_shared(old: Reference, new: Reference) -> str:
    """Return why two studies cannot be compared: other work, or the same with other cells."""
    old_groups, new_groups = _measured_groups(old), _measured_groups(new)
    old_works = dict.fromkeys(_work_words(group) for group in old_groups)
    new_works = dict.fromkeys(_work_words(group) for group in new_groups)
    if old_works.keys().isdisjoint(new_works):
        difference = "measured different work, name two studies of one workload"
        sides = names(old_works), names(new_works)
    else:
        difference = "have no cell in common (GPUs, batch, strategy)"
        sides = _places(old_groups), _places(new_groups)
    return (
        f"{old.study} and {new.study} {difference}: {old.study} {sides[0]}; "
        f"{new.study} {sides[1]}"
    )


def _measured_groups(side: Reference) -> list[ReferenceGroup]:
    return [group for group in side.groups if any(cell.runs for cell in group.cells)]


def _places(groups: list[ReferenceGroup]) -> str:
    return names(dict.fromkeys(words.places_text(group) for group in groups))


def _work_words(group: ReferenceGroup) -> str:
    """Return `digits (512 samples per epoch)`."""
    workload, images, timed = group.work
    if timed != EPOCH:
        return f"{workload} (times of {timed})"
    if images in (NONE, None):
        return f"{workload} (epochs of a script)"
    return f"{workload} ({images} samples per epoch)"


def _values(cell: ComparedCell) -> dict[str, Any]:
    estimate, interval = cell.ratio
    return {
        **_place(cell.new),
        "verdict": table.verdict(cell),
        "ratio": estimate,
        "ratio_low": interval.low if interval else None,
        "ratio_high": interval.high if interval else None,
        "p": cell.p,
        "smallest_difference": cell.smallest_difference,
        "doubtful": cell.is_doubtful,
        "a": _side(cell.old),
        "b": _side(cell.new),
    }


def _side(cell: ReferenceCell) -> dict[str, Any]:
    return {
        "epoch_s": cell.median_s("epoch_s"),
        **{name: cell.median_s(name) for name in PARTS},
        "all_epoch_s": cell.epochs_s,
        "left_out": cell.left_out,
        "failed": cell.failed,
        "warned": cell.warned,
        "clocks": cell.clocks,
    }


def _place(cell: ReferenceCell) -> dict[str, Any]:
    return {
        "strategy": cell.strategy.value,
        "gpus": cell.gpus,
        "nodes": cell.nodes,
        "treatment": cell.treatment,
        "batch": cell.batch,
    }
