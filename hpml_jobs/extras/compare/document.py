"""The comparison of two studies as text, values and a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hpml_jobs.checks.result import names
from hpml_jobs.core.conditions import NONE
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import percent_text
from hpml_jobs.extras.compare import table, words
from hpml_jobs.extras.compare.reference import (
    EPOCH,
    Reference,
    ReferenceCell,
    ReferenceGroup,
)
from hpml_jobs.extras.compare.rules import (
    PARTS,
    ComparedCell,
    ComparedGroup,
    StudyComparison,
    compare_studies,
)
from hpml_jobs.extras.compare.words import names_of
from hpml_jobs.report.frame import style
from hpml_jobs.report.frame.captions import MARK, cell_label
from hpml_jobs.report.frame.picture import Axes, Entry, Picture, files_of, rows
from hpml_jobs.report.frame.table import Table
from hpml_jobs.results.decision import LEAST_GAP, Decision
from hpml_jobs.study.files import write_whole


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


def write_picture(text: ComparisonText, folder: Path) -> list[Path]:
    """Write compare.png and compare.svg; the same comparison gives the same bytes.

    Raises:
        OSError: they cannot be written.
    """
    files = picture_files(text.comparison, text.answer, text.limit)
    for name, content in files.items():
        write_whole(folder / name, content)
    return [folder / name for name in files]


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


NO_DIFFERENCE, NOT_DECIDED = "no difference seen", "not decided"
VERDICTS: dict[Decision | None, str] = {
    Decision.SLOWER: "slower",
    Decision.FASTER: "faster",
    Decision.SAME: NO_DIFFERENCE,
    Decision.BELOW_GAP: NO_DIFFERENCE,
}
"""What is said of decisions; the others are not decided."""

COLOURS = {
    "slower": style.RED,
    "faster": style.BLUE,
    NO_DIFFERENCE: style.BLACK,
    NOT_DECIDED: style.MIDDLE_GREY,
}
"""The colours of the verdicts."""


def _face(verdict: str) -> str:
    """Return the colour inside the marker of a verdict: hollow where it is not decided."""
    return style.PAPER if verdict == NOT_DECIDED else COLOURS[verdict]


LIMIT: Any = {"color": style.RED, "lw": 1.2, "ls": (0, (4, 3))}
"""The properties of the line of a limit."""

CAPTION = (
    "Change of the time from A ({old}) to B ({new}): ratio of times (Hodges-Lehmann) with "
    "its 95 % interval. Grey band: 2 %, below which no difference is called. Hollow: medians, too "
    "few runs to tell or a failed check. {mark} a check warns."
)


class Change(NamedTuple):
    """The change of a cell from one study to the other, and its verdict."""

    label: str
    verdict: str
    cell: ComparedCell


def picture_files(
    comparison: StudyComparison, answer: str, limit: float | None
) -> dict[str, bytes]:
    """Return compare.png and compare.svg; nothing without a shared cell."""
    with style.applied():
        picture = comparison_picture(comparison, answer, limit)
    return files_of(picture._replace(name="compare")) if picture else {}


def comparison_picture(
    comparison: StudyComparison, answer: str, limit: float | None
) -> Picture | None:
    """Plot the change of every shared cell; None without one."""
    cells = [
        Change(
            _label(comparison, group, cell),
            VERDICTS.get(cell.decision, NOT_DECIDED),
            cell,
        )
        for group in comparison.groups
        for cell in group.measured
    ]

    def draw(axis: Axes, cells: Sequence[Change]) -> list[str]:
        axis.axvspan(
            -100 * LEAST_GAP,
            100 * LEAST_GAP,
            color=style.PALE,
            alpha=0.5,
            lw=0,
            zorder=0,
        )
        axis.axvline(0, color=style.BLACK, lw=1)
        if limit is not None:
            axis.axvline(100 * limit, **LIMIT)
        for row, (_, verdict, cell) in enumerate(cells):
            (estimate, interval), colour = cell.ratio, COLOURS[verdict]
            if interval and verdict != NOT_DECIDED:
                ends = [100 * (interval.low - 1), 100 * (interval.high - 1)]
                axis.plot(ends, [row, row], color=colour, lw=1.8, marker="|", ms=7)
            axis.plot(
                [100 * (estimate - 1)],
                [row],
                color=colour,
                marker="o",
                ms=6,
                mfc=_face(verdict),
                ls="",
            )
        return []

    verdicts = {change.verdict for change in cells}
    looks: dict[str, Entry] = {
        name: {"color": colour, "marker": "o", "ms": 4, "mfc": _face(name)}
        for name, colour in COLOURS.items()
        if name in verdicts
    }
    if limit is not None:
        looks[f"limit {percent_text(limit)}"] = LIMIT | {"lw": 1.4}
    names = names_of(comparison)
    return rows(
        f"{names.new} compared with {names.old}",
        cells,
        draw,
        x="change of the time, %   (left: B is faster, right: B is slower)",
        alt=answer,
        caption=[answer, CAPTION.format(old=names.old, new=names.new, mark=MARK)],
        legend=looks,
        file="compare --json",
    )


def _label(
    comparison: StudyComparison, group: ComparedGroup, cell: ComparedCell
) -> str:
    label = cell_label(cell.place, group.new.device)
    mark = f"{MARK} " if cell.is_doubtful else ""
    workload = f"{group.new.work[0]}: " if len(comparison.groups) > 1 else ""
    return f"{mark}{workload}{label}"
