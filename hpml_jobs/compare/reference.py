"""References: the numbers of a study that a comparison needs, and the small file of them."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median

import msgspec

from hpml_jobs import __version__
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import Affected, Level
from hpml_jobs.core.conditions import WORKLOAD
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.measurements import Card, Role
from hpml_jobs.core.place import Place, Setup
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.validation import out_of_range
from hpml_jobs.core.value import Upgrade, Value, decode_upgraded
from hpml_jobs.report.frame.captions import setting, work_text
from hpml_jobs.results.cells import cell_results
from hpml_jobs.results.checks.study import checked_groups
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row
from hpml_jobs.study.files import encode, read_bytes, reason_of, write_whole
from hpml_jobs.study.snapshot import FolderSnapshot

SCHEMA = 1
"""Version of a reference file. 1: first."""

UPGRADES: dict[int, Upgrade] = {}
"""From each released schema to the next one."""

SHORTEST_S = 1e-9
"""The shortest epoch that is read: the ratio of a shorter one may be no number."""

EPOCH = "epoch"

Work = tuple[str | None, str | None, str]

CLOCKS: dict[str, Callable[[Card], float | None]] = {
    "SM clock, MHz": lambda card: card.clock_mhz,
    "memory clock, MHz": lambda card: card.memory_clock_mhz,
    "power limit, W": lambda card: card.power_limit_w,
}
"""What the speed of a GPU depends on beside its model, read after the instrumented epoch."""


class ReferenceRun(Value, frozen=True, kw_only=True, omit_defaults=True):
    """Seconds of one run.

    Of the timed epoch: all of it, and waiting for data. Of the instrumented epoch: computation and
    exposed communication. None: not measured, disturbed, or no communication on one GPU.
    """

    epoch_s: float
    stall_s: float | None = None
    compute_s: float | None = None
    comm_exposed_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse an epoch that takes no time."""
        if self.epoch_s < SHORTEST_S:
            raise ValueError(f"epoch_s is {self.epoch_s:g} s")


class ReferenceCell(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The runs of a study at one place.

    `left_out` runs were disturbed; `failed` and `warned` are the checks that make the times wrong
    or doubtful. `clocks` are medians over runs and GPUs, by the names in `CLOCKS`.
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
    clocks: dict[str, float] = {}

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
    def is_doubtful(self) -> bool:
        """Whether a check fails or warns of the time."""
        return bool(self.failed or self.warned)

    @property
    def epochs_s(self) -> tuple[float, ...]:
        """Seconds of the timed epoch of every run that counts."""
        return tuple(run.epoch_s for run in self.runs)

    def median_s(self, name: str) -> float | None:
        """Return the median over the runs that have this number; None if none has."""
        values = [getattr(run, name) for run in self.runs]
        measured = [value for value in values if value is not None]
        return median(measured) if measured else None


class ReferenceGroup(Value, frozen=True, kw_only=True):
    """The cells that were measured under the same conditions; `setting` says them in a line.

    `timed` is what the times are of: an epoch, or other work of a window.
    """

    setting: str
    device: Device
    imported: bool
    timed: str = EPOCH
    conditions: dict[str, str]
    cells: tuple[ReferenceCell, ...]

    @property
    def work(self) -> Work:
        """What times must have in common to be compared: workload, samples, what is timed."""
        return self.conditions.get(WORKLOAD), self.conditions.get("images"), self.timed

    @property
    def time_word(self) -> str:
        """The short name of a time: `epoch`, or `time` where it is of other work."""
        return EPOCH if self.timed == EPOCH else "time"


class Reference(Value, frozen=True, kw_only=True):
    """The numbers of a study; `measured` is when its last run ended, UTC, empty if unknown."""

    study: str
    measured: str
    groups: tuple[ReferenceGroup, ...]
    hpml_jobs: str = __version__
    schema: int = SCHEMA

    @property
    def has_numbers(self) -> bool:
        """Whether any cell has a run that counts."""
        return any(cell.runs for group in self.groups for cell in group.cells)


def _cell(group: ConditionGroup, row: Row) -> ReferenceCell:
    return ReferenceCell(
        strategy=row.strategy,
        gpus=row.gpus,
        nodes=row.nodes,
        batch=row.batch_per_gpu,
        treatment=row.treatment,
        path=row.path,
        outcome=row.outcome,
        runs=tuple(
            ReferenceRun(
                epoch_s=run.epoch_s,
                stall_s=run.stall_s,
                compute_s=run.compute_s,
                comm_exposed_s=run.comm_exposed_s if row.gpus > 1 else None,
            )
            for run in row.runs
        ),
        left_out=sum(run.role is Role.TIMED for run in row.left_out),
        failed=tuple(dict.fromkeys(_violated(group, row, Level.FAIL))),
        warned=tuple(dict.fromkeys(_violated(group, row, Level.WARN))),
        clocks=_clocks(group, row),
    )


def _violated(group: ConditionGroup, row: Row, level: Level) -> Iterator[str]:
    """Return the checks at this level that make the times of counted runs doubtful."""
    checks = group.doubts_of(row, Affected.TIME)
    return (result.check for result in checks if result.level is level)


def _clocks(group: ConditionGroup, row: Row) -> dict[str, float]:
    records = group.counted_records(row, Affected.TIME)
    cards = [card for record in records for card in record.cards]
    clocks = {}
    for name, read in CLOCKS.items():
        values = [value for value in map(read, cards) if value]
        if values:
            clocks[name] = float(median(values))
    return clocks


def reference_of(study: str, snapshots: Iterable[FolderSnapshot]) -> Reference:
    """Return the numbers of a study.

    Raises:
        HpmlError: no cell has a number.
    """
    results = cell_results(snapshots, {})
    records = [result.record for result in results if result.record and result.measured]
    reference = Reference(
        study=study,
        measured=max((record.attempt.ended for record in records), default=""),
        groups=tuple(
            ReferenceGroup(
                setting=setting(group),
                device=group.device,
                imported=group.imported,
                timed=work_text(group.work),
                conditions=group.conditions,
                cells=tuple(_cell(group, row) for row in group.rows),
            )
            for group in checked_groups(results)
        ),
    )
    if not reference.has_numbers:
        raise HpmlError(f"no cell of study {study} has a number (status shows why)")
    return reference


def write_reference(reference: Reference, path: Path) -> None:
    """Write a reference file; the same numbers give the same bytes.

    Raises:
        HpmlError: it cannot be written.
    """
    try:
        write_whole(path, encode(reference))
    except OSError as fault:
        raise HpmlError(
            f"reference {path} cannot be written: {fault.strerror}"
        ) from fault


def read_reference(path: Path) -> Reference:
    """Return the content of a reference file.

    Raises:
        HpmlError: it cannot be read, is damaged, or a newer version wrote it.
    """
    try:
        reference = decode_upgraded(read_bytes(path), Reference, SCHEMA, UPGRADES)
        fault = out_of_range(msgspec.to_builtins(reference))
        if fault:
            raise ValueError(fault)
        if not reference.has_numbers:
            raise ValueError("it has no numbers")
    except (OSError, ValueError) as fault:
        raise HpmlError(
            f"reference {path} cannot be read: {reason_of(fault)}; save it again with hpml-jobs "
            "compare --save"
        ) from fault
    return reference
