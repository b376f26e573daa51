"""References: the numbers of a study that a comparison needs, and the small file of them."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import Affected, Level
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.text import VERSION
from hpml_jobs.core.validation import out_of_range
from hpml_jobs.core.value import Value, decode_upgraded
from hpml_jobs.report.frame.captions import setting, work_text
from hpml_jobs.results.cells import Place, Setup, cell_results
from hpml_jobs.results.checks.study import checked_groups
from hpml_jobs.results.conditions import WORKLOAD
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row
from hpml_jobs.study.files import encode, read_bytes, reading, write_whole, writing
from hpml_jobs.study.snapshot import FolderSnapshot

SCHEMA = 1
"""Version of a reference file. 1: first; since 1.0 without parts of epochs, clocks and the day."""

SHORTEST_S = 1e-9
"""The shortest epoch that is read: the ratio of a shorter one may be no number."""

Work = tuple[str | None, str | None, str]


class _Stored(Value, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A value of a reference file; fields that earlier versions wrote as well are not read."""


class ReferenceRun(_Stored, frozen=True, kw_only=True):
    """Seconds of the timed epoch of one run."""

    epoch_s: float

    def __post_init__(self) -> None:
        """Refuse an epoch that takes no time."""
        if self.epoch_s < SHORTEST_S:
            raise ValueError(f"epoch_s is {self.epoch_s:g} s")


class ReferenceCell(_Stored, frozen=True, kw_only=True, omit_defaults=True):
    """The runs of a study at one place.

    `left_out` runs were disturbed; `failed` and `warned` are the checks that make the times wrong
    or doubtful.
    """

    strategy: Strategy
    gpus: int
    nodes: int
    batch: int
    treatment: str = ""
    path: str = ""
    outcome: Outcome = Outcome.OK
    runs: tuple[ReferenceRun, ...] = ()
    left_out: int = 0
    failed: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a place that no cell has."""
        for name in ("gpus", "nodes", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}")

    @property
    def place(self) -> Place:
        """Its setup and batch."""
        setup = Setup(self.gpus, self.nodes, self.strategy, self.treatment, self.path)
        return Place(setup, self.batch)

    @property
    def epochs_s(self) -> tuple[float, ...]:
        """Seconds of the timed epoch of every run that counts."""
        return tuple(run.epoch_s for run in self.runs)


class ReferenceGroup(_Stored, frozen=True, kw_only=True):
    """The cells that were measured under the same conditions; `setting` says them in a line.

    `timed` is what the times are of: an epoch, or other work of a window.
    """

    setting: str
    device: Device
    timed: str = work_text(None)
    conditions: dict[str, str]
    cells: tuple[ReferenceCell, ...]

    @property
    def work(self) -> Work:
        """What times must have in common to be compared: workload, samples, what is timed."""
        return self.conditions.get(WORKLOAD), self.conditions.get("images"), self.timed


class Reference(_Stored, frozen=True, kw_only=True):
    """The numbers of a study."""

    study: str
    groups: tuple[ReferenceGroup, ...]
    hpml_jobs: str = VERSION
    schema: int = SCHEMA

    @property
    def has_numbers(self) -> bool:
        """Whether any cell has a run that counts."""
        return any(cell.runs for group in self.groups for cell in group.cells)


def _cell(group: ConditionGroup, row: Row) -> ReferenceCell:
    checks = row.doubts.get(Affected.TIME, [])
    failed = (check.check for check in checks if check.level is Level.FAIL)
    warned = (check.check for check in checks if check.level is Level.WARN)
    return ReferenceCell(
        strategy=row.strategy,
        gpus=row.gpus,
        nodes=row.nodes,
        batch=row.batch_per_gpu,
        treatment=row.treatment,
        path=row.path,
        outcome=row.outcome,
        runs=tuple(ReferenceRun(epoch_s=run.epoch_s) for run in row.runs),
        left_out=sum(run.role is Role.TIMED for run in row.left_out),
        failed=tuple(dict.fromkeys(failed)),
        warned=tuple(dict.fromkeys(warned)),
    )


def reference_of(study: str, snapshots: Iterable[FolderSnapshot]) -> Reference:
    """Return the numbers of a study.

    Raises:
        HpmlError: no cell has a number.
    """
    groups = (
        ReferenceGroup(
            setting=setting(group),
            device=group.device,
            timed=work_text(group.work),
            conditions=group.conditions,
            cells=tuple(_cell(group, row) for row in group.rows),
        )
        for group in checked_groups(cell_results(snapshots, {}))
    )
    reference = Reference(study=study, groups=tuple(groups))
    if not reference.has_numbers:
        raise HpmlError(f"no cell of study {study} has a number (status shows why)")
    return reference


def write_reference(reference: Reference, path: Path) -> None:
    """Write a reference file; the same numbers give the same bytes.

    Raises:
        HpmlError: it cannot be written.
    """
    with writing(f"reference {path}"):
        write_whole(path, encode(reference))


def read_reference(path: Path) -> Reference:
    """Return the content of a reference file.

    Raises:
        HpmlError: it cannot be read, is damaged, or a newer version wrote it.
    """
    with reading(f"reference {path}"):
        reference = decode_upgraded(read_bytes(path), Reference, SCHEMA, {})
        fault = out_of_range(msgspec.to_builtins(reference))
        if fault:
            raise ValueError(fault)
        if not reference.has_numbers:
            raise ValueError("it has no numbers")
    return reference
