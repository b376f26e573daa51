"""What a teacher sees of studies in folders: owner, size, speedup, whether they are ready."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from hpml_jobs.checks.study import checked_groups
from hpml_jobs.cli.console import plain_table
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import Affected, Level
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.value import Value
from hpml_jobs.extras.studies.listing import STUDY_HEADINGS, Listed, study_row
from hpml_jobs.report.frame.captions import mark
from hpml_jobs.report.frame.numbers import DASH
from hpml_jobs.results.cells import cell_results
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.status.states import StudyStatus
from hpml_jobs.study.files import BLOCK_BYTES, owner
from hpml_jobs.study.selection import OUTPUTS, all_studies, is_study
from hpml_jobs.study.study import Study


class Speedup(Value, frozen=True, kw_only=True):
    """The speedup on the most GPUs, there at the largest batch; a check can make it doubtful."""

    speedup: float
    gpus: int
    batch_per_gpu: int
    is_doubtful: bool


class Holding(NamedTuple):
    """The folder a study is in, its owner, its size on disk, its speedup.

    `has_number`: a cell has a time that no check calls wrong.
    """

    folder: str
    owner: str
    bytes: int
    speedup: Speedup | None
    has_number: bool


def studies_in(folder: Path) -> list[Study]:
    """Return the study that a folder is, or those in it and in its folder `outputs`.

    In each, the most recently submitted is first.

    Raises:
        HpmlError: it is not a folder, or cannot be read.
    """
    if not folder.is_dir():
        raise HpmlError(
            f"{folder} is not a folder: name studies, or folders of studies"
        )
    if is_study(folder):
        return [Study(folder.resolve())]
    outputs = folder / OUTPUTS
    # a study is in the folder itself
    inside = [] if is_study(outputs) else all_studies(outputs)
    return [*all_studies(folder), *inside]


def holding_of(study: Study, status: StudyStatus | HpmlError) -> Holding:
    """Return the folder, the owner, the size and the speedup of a study."""
    groups = [] if isinstance(status, HpmlError) else _groups(status)
    return Holding(
        folder=str(study.root.parent),
        owner=owner(study.root),
        bytes=_size_bytes(study.root),
        speedup=_speedup(groups),
        has_number=any(map(_has_number, groups)),
    )


def _groups(status: StudyStatus) -> list[ConditionGroup]:
    states = {state.slug: state for state in status.states}
    return checked_groups(cell_results(status.snapshots, states))


def _has_number(group: ConditionGroup) -> bool:
    return any(group.worst(row, Affected.TIME) is not Level.FAIL for row in group.timed)


def _size_bytes(folder: Path) -> int:
    """Return the bytes that the files of a folder take on disk; unreadable folders count 0."""
    paths = (Path(top, name) for top, _, names in os.walk(folder) for name in names)
    return sum(path.lstat().st_blocks * BLOCK_BYTES for path in paths)


def _speedup(groups: Sequence[ConditionGroup]) -> Speedup | None:
    """Return the speedup on the most GPUs, there at the largest batch; None if there is none."""
    speedups = [
        Speedup(
            speedup=row.speedup,
            gpus=row.gpus,
            batch_per_gpu=row.batch_per_gpu,
            is_doubtful=group.doubts_ratio(row),
        )
        for group in groups
        for row in group.timed
        if row.gpus > 1 and row.speedup is not None
    ]
    return max(speedups, key=lambda row: (row.gpus, row.batch_per_gpu), default=None)


def unfinished(study: Listed) -> int | None:
    """Return the number of unfinished cells; None if the study is unreadable or has no cell."""
    if not study.cells:
        return None
    return sum(n for name, n in study.cells.items() if not Outcome(name).finished)


def holdings_table(listed: Sequence[Listed], holdings: Sequence[Holding]) -> Table:
    """Return a line per study: what is in its folder, then what `list` shows."""
    fixed, foldable = STUDY_HEADINGS
    table = plain_table(
        ("folder", "owner", "size", "ready", "speedup", *fixed), foldable
    )
    for study, holding in zip(listed, holdings, strict=True):
        table.add_row(
            holding.folder,
            holding.owner,
            f"{holding.bytes / 1e6:.3g} MB",
            _ready(study, holding),
            _words(holding.speedup),
            *study_row(study),
        )
    return table


def _ready(study: Listed, holding: Holding) -> str:
    cells = unfinished(study)
    if cells is None:
        return DASH
    if cells:
        return f"{cells} unfinished"
    return "yes" if holding.has_number else "no usable number"


def _words(speedup: Speedup | None) -> str:
    if speedup is None:
        return DASH
    ratio = mark(f"{speedup.speedup:.2f}", is_doubtful=speedup.is_doubtful)
    return f"{ratio} on {speedup.gpus}, b{speedup.batch_per_gpu}"
