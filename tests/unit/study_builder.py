"""A study folder built by hand: its cells, their records, jobs and attempts."""

from pathlib import Path
from typing import Any, Self

import msgspec

from hpml_jobs.core.cell import Cell, CellFile, Outcome
from hpml_jobs.core.cluster import Shape
from hpml_jobs.core.record import Attempt, Facts, Record
from hpml_jobs.report.folder import SHEET_FILES, make, tables, write
from hpml_jobs.report.frame.table import Sheet, Table
from hpml_jobs.report.page.contents import public_page
from hpml_jobs.report.page.formats import markdown_document
from hpml_jobs.report.report import Report, make_report
from hpml_jobs.status.states import cell_states
from hpml_jobs.study.cell_folder import AttemptEnd, CellFolder, utc_now
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.manifest import ManifestEvent, ManifestLine
from hpml_jobs.study.snapshot import CellState, read_snapshots
from hpml_jobs.study.study import Study
from tests.unit.builders import (
    PUBLISHED_S,
    V100,
    a_cell,
    a_record,
    lab_cell,
    lab_record,
)

SHAPE = Shape(
    nodes=1,
    gpus_per_node=4,
    gpu_type="v100",
    cpus_per_node=12,
    mem_gb_per_node=16,
    minutes=20,
)


def write_record(folder: CellFolder, record: Record) -> None:
    """Write a cell's record.json, and the attempt.json of the attempt that measured it."""
    about = folder.attempt(record.attempt.id).about
    if not about.exists():
        write_whole(about, encode(record.attempt))
    write_whole(folder.record_json, encode(record))


def write_tables(report: Report, folder: Path) -> list[Path]:
    """Write the files of a report without its page and its pictures, which take a second."""
    make(folder)
    return write(tables(report, has_all=True), folder, SHEET_FILES)


def page_text(report: Report) -> str:
    """Return the page as Markdown, without pictures."""
    return markdown_document(public_page(report, {}, ()))


class StudyBuilder:
    """StudyBuilder(folder).with_batches(32, 64).sent_as("101_0", "101_1")."""

    def __init__(self, root: Path) -> None:
        self.study = Study(root)
        self.study.create()
        self.cells: list[Cell] = []
        self.report_states: dict[str, CellState] = {}

    # ---- cells and records ----

    def with_cell(
        self,
        cell: Cell,
        outcome: Outcome = Outcome.OK,
        reason: str = "",
        **of_file: Any,
    ) -> Self:
        """Write cell.json; a report shows the cell with this outcome."""
        file = CellFile(
            **({"cell": cell, "data_root": "/data", "code_root": "/code"} | of_file)
        )
        write_whole(self.study.cell(cell.slug).cell_json, encode(file))
        self.cells.append(cell)
        self.report_states[cell.slug] = CellState(
            slug=cell.slug, outcome=outcome, reason=reason
        )
        return self

    def with_batches(self, *batches: int) -> Self:
        """Cells that differ only in their batch per GPU."""
        for batch in batches:
            self.with_cell(a_cell(batch=batch), shape=SHAPE)
        return self

    def with_record(self, record: Record) -> Self:
        """A finished cell with its record."""
        self.with_cell(record.cell)
        write_record(self.study.cell(record.slug), record)
        return self

    def with_three_sizes(self) -> Self:
        """1, 2 and 4 GPUs at one batch, of which 2 are efficient."""
        for gpus, epoch_s in ((1, 8.0), (2, 4.4), (4, 4.0)):
            self.with_record(
                a_record(a_cell(gpus=gpus, batch=128), f"10{gpus}_0.r0", epoch_s)
            )
        return self

    def with_published_study(
        self,
        stall_s: float = 0.0,
        facts: Facts = V100,
        but: tuple[tuple[int, int], ...] = (),
    ) -> Self:
        """The nine cells of the lab's published study, without those (GPUs, batch) in `but`."""
        for (gpus, batch), epoch_s in PUBLISHED_S.items():
            if (gpus, batch) not in but:
                self.with_record(
                    lab_record(lab_cell(gpus, batch), epoch_s, stall_s, facts)
                )
        return self

    def with_out_of_memory(self, cell: Cell, facts: Facts | None = None) -> Self:
        """A cell whose record says that it did not fit into the GPU's memory."""
        reason = "CUDA out of memory. Tried to allocate 2.00 GiB\nand more"
        changes = {"outcome": Outcome.OOM, "reason": reason, "ranks": (), "model": None}
        return self.with_record(
            msgspec.structs.replace(lab_record(cell, 1.0), facts=facts, **changes)
        )

    @property
    def slug(self) -> str:
        """The slug of the cell that was added last."""
        return self.cells[-1].slug

    # ---- jobs and attempts: a cell is named by its batch per GPU ----

    def folder(self, batch: int) -> CellFolder:
        """The folder of the cell with this batch."""
        (slug,) = (cell.slug for cell in self.cells if cell.batch == batch)
        return self.study.cell(slug)

    def sent_as(self, *jobs: str, batches: tuple[int, ...] = ()) -> Self:
        """Note one submission in the manifest: all cells, or those of `batches`, as these jobs."""
        return self.with_event(ManifestEvent.SENT, *jobs, batches=batches)

    def with_event(
        self,
        event: ManifestEvent,
        *jobs: str,
        batches: tuple[int, ...] = (),
        **fields: Any,
    ) -> Self:
        """Append a line to the manifest."""
        slugs = tuple(
            cell.slug for cell in self.cells if not batches or cell.batch in batches
        )
        line = ManifestLine(
            happening=event, batch="b1", cells=slugs, jobs=jobs, **fields
        )
        self.study.append(line)
        return self

    def begin_attempt(
        self, batch: int, job: str, restart: int = 0, started: str | None = None
    ) -> Attempt:
        """An attempt that has begun, by default now."""
        started = utc_now() if started is None else started
        attempt = Attempt(
            id=f"{job}.r{restart}", job=job, restart=restart, started=started
        )
        folder = self.folder(batch)
        write_whole(folder.attempt(attempt.id).about, encode(attempt))
        write_whole(folder.current, attempt.id.encode())
        return attempt

    def end_attempt(
        self,
        batch: int,
        job: str,
        outcome: Outcome,
        reason: str | None = None,
        **of_end: Any,
    ) -> None:
        """An attempt with its exit report, and with its record where it has measured."""
        attempt = self.begin_attempt(
            batch, job, of_end.pop("restart", 0), of_end.pop("started", None)
        )
        end = AttemptEnd(attempt=attempt, outcome=outcome, reason=reason, **of_end)
        write_whole(self.folder(batch).attempt(attempt.id).end, encode(end))
        if outcome.finished:
            self.publish_record(batch, attempt.id, outcome=outcome, reason=reason)

    def publish_record(self, batch: int, attempt: str, **changes: Any) -> None:
        """Write a cell's record.json, as the job's wrapper does."""
        folder = self.folder(batch)
        record = a_record(folder.read().cell, attempt=attempt, **changes)
        about = folder.attempt(attempt).read_about()
        if about is not None:
            begun = msgspec.structs.replace(record.attempt, started=about.started)
            record = msgspec.structs.replace(record, attempt=begun)
        write_record(folder, record)

    # ---- what the program makes of it ----

    def states_by_batch(self) -> dict[int, CellState]:
        """The states that `status` gives, by batch per GPU."""
        by_slug = {state.slug: state for state in cell_states(self.study)}
        return {cell.batch: by_slug[cell.slug] for cell in self.cells}

    def outcomes(self) -> list[Outcome]:
        """The outcomes in the order of the cells."""
        return [state.outcome for state in self.states_by_batch().values()]

    @property
    def state(self) -> CellState:
        """The state of the only cell."""
        (state,) = cell_states(self.study)
        return state

    def collect(self) -> Report:
        """The study's report."""
        snapshots = read_snapshots(self.study.cells())
        return make_report(self.study.name, snapshots, self.report_states.values())

    def table(self, label: str, group: int = 1) -> Table:
        """One table of the report."""
        tables = self.collect().groups[group - 1].tables
        return next(table for table in tables if table.label == label)

    def sheet(self, label: str, group: int = 1) -> Sheet:
        """The numbers of a table or a sheet of the report, for programs."""
        sheets = self.collect().groups[group - 1].sheets
        return sheets[label] if label in sheets else self.table(label, group).sheet
