"""Fixtures: a script as forked ranks, and what was seen of it."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from hpml_jobs.core.cell import Cell, Protocol
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.record import Record
from hpml_jobs.core.script import Script
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.validation import decode
from hpml_jobs.core.workload import Workload
from hpml_jobs.study.cell_folder import OBSERVE_VARIABLE, AttemptFolder
from hpml_jobs.worker.observer import __main__ as merging

SCRIPTS = Path(__file__).parents[3] / "scripts"


class Seen(NamedTuple):
    """Exit code and output of a script, its attempt, and the reason if there is no record.

    `note` says whether it was ended.
    """

    code: int
    stdout: str
    stderr: str
    attempt: AttemptFolder
    reason: str | None
    note: str

    @property
    def record(self) -> Record:
        assert self.reason is None, self.stderr
        return decode(self.attempt.record.read_bytes(), str(self.attempt.record))


def script_cell(path: str, args: str, *, gpus: int, batch: int, **fields) -> Cell:
    strategy = fields.pop("strategy", Strategy.SINGLE if gpus == 1 else Strategy.DDP)
    return Cell(
        gpus=gpus,
        batch=batch,
        strategy=strategy,
        workload=Workload(name="script", model="script", data="script"),
        protocol=Protocol.OUTSIDE,
        epochs=2,
        device=Device.CPU,
        script=Script(path=path, args=args, **fields),
    )


@pytest.fixture
def observe(write_cell, rank_server, tmp_path):
    """Run a script as forked ranks, and merge what they saw."""

    def run(script, args="", *, gpus=2, batch=128, **fields):
        path = SCRIPTS / script
        if "\n" in script:
            path = tmp_path / "train.py"
            path.write_text(script)
        folder = write_cell(
            script_cell(path.name, args, gpus=gpus, batch=batch, **fields)
        )
        attempt = folder.attempt("17_0")
        words = ("tests.unit.worker.observer.observed_script", str(path), *args.split())
        environment = os.environ | {OBSERVE_VARIABLE: str(attempt.root)}
        ended = rank_server.run(gpus, tmp_path, *words, environment=environment)
        reason, note = None, ""
        try:
            note = merging.merge(folder.read(), attempt)
        except HpmlError as fault:
            reason = str(fault)
        return Seen(*ended, attempt, reason, note)

    return run
