"""Studies made by hand: cells, the jobs they were sent as, attempts that began and ended."""

from pathlib import Path
from typing import Any

import msgspec

from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.cluster import Shape
from hpml_jobs.core.record import Attempt
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.status.states import states
from hpml_jobs.study.attempt import AttemptEnd
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.manifest import ManifestEvent, ManifestLine
from hpml_jobs.study.study import Study
from tests.unit.builders import a_cell, a_record

SHAPE = Shape(
    nodes=1, gpus_per_node=4, gpu_type="v100", cpus_per_node=12, mem_gb_per_node=16, minutes=20
)


class Made:
    """A study of cells that differ in their batch, which names them here."""

    def __init__(self, outputs: Path, *batches: int, ladder: bool = False) -> None:
        self.study = Study(outputs / "mine")
        self.study.create()
        self.cells = {batch: a_cell(batch=batch) for batch in batches}
        for one in self.cells.values():
            file = CellFile(cell=one, data_root="", code_root="", shape=SHAPE, ladder=ladder)
            write_whole(self.study.cell(one.slug).cell_json, encode(file))

    def send(self, **jobs: str) -> None:
        """Cells as jobs: send(b32="17_0", b64="17_1"); in one submission."""
        slugs = tuple(self.cells[int(name[1:])].slug for name in jobs)
        line = ManifestLine(
            happening=ManifestEvent.SENT, batch="b1", cells=slugs, jobs=tuple(jobs.values())
        )
        self.study.append(line)

    def begin(self, batch: int, job: str, restart: int = 0) -> Attempt:
        """An attempt that has begun, now."""
        attempt = Attempt(id=f"{job}.r{restart}", job=job, restart=restart)
        folder = self.study.cell(self.cells[batch].slug)
        write_whole(folder.attempt(attempt.id).about, encode(attempt))
        write_whole(folder.current, attempt.id.encode())
        return attempt

    def end(self, batch: int, job: str, outcome: Outcome, reason: str = "", **more: Any) -> None:
        """An attempt whose wrapper said its last words; with its record where it is finished."""
        attempt = self.begin(batch, job, more.pop("restart", 0))
        folder = self.study.cell(self.cells[batch].slug)
        last = AttemptEnd(attempt=attempt, outcome=outcome, reason=reason or None, **more)
        write_whole(folder.attempt(attempt.id).end, encode(last))
        if outcome.finished:
            found = a_record(self.cells[batch], attempt=attempt.id, outcome=outcome)
            found = msgspec.structs.replace(found, reason=reason or None)
            write_whole(folder.record_json, encode(found))

    def states(self) -> dict[int, CellState]:
        """Where the cells stand, by batch."""
        by_slug = {state.slug: state for state in states(self.study)}
        return {batch: by_slug[one.slug] for batch, one in self.cells.items()}

    def outcomes(self) -> list[Outcome]:
        """Where the cells stand, in the order of batches."""
        return [state.outcome for state in self.states().values()]
