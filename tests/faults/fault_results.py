"""What a fault cost, counted: cells lost, numbers invented, processes left; and the page of it."""

import contextlib
import csv
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from hpml_jobs import __version__
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import InvalidRecordError
from hpml_jobs.study.cell_folder import CellFolder
from tests.faults.fault_study import Case, wait_until

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
_HEAD = """# Injected faults and their effects

The tests in [tests/faults](../tests/faults) inject the faults of a cluster into studies on a real
SLURM ([tests/rig](../tests/rig/README.md)). `make test-long` writes this page. `make test` runs the
most important of these faults.

| column | meaning |
|---|---|
| lost cells | without a line in `status`, without record and reason, or not submitted again |
| invented numbers | in a record, if no attempt left them; in the report, if no record has them |
| processes left | processes of the study that still run after its end |

| fault | expected | seen | lost cells | invented numbers | processes left |
|---|---|---|---:|---:|---:|
"""


class Row(NamedTuple):
    """One line of the page."""

    fault: str
    expected: str
    seen: str
    lost: int
    invented: int
    left: int

    def __str__(self) -> str:
        texts = [self.fault, self.expected, self.seen, *map(str, self[3:])]
        return f"| {' | '.join(text.replace('|', '/') for text in texts)} |"


class Ledger:
    """The rows of one run of the suite."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def __call__(self, fault: str, case: Case, expected: str, also: str = "") -> None:
        """Count what a fault has cost a study that is over, and demand that it cost nothing.

        `expected` are the outcomes, e.g. "1 ok, 1 cancelled"; `also` is what the test asserted
        besides, for the page.
        """
        states, asked = case.states(), case.asked()
        case.collect()
        lost = [slug for slug, why in asked.items() if _lost(states.get(slug), why)]
        invented = [cell.slug for cell in case.study.cells() if _invented(cell)]
        invented += _made_up_in_report(case)
        with contextlib.suppress(AssertionError):  # what is left is counted
            wait_until(lambda: not case.alive(), "no process is left", timeout_s=30)
        outcomes = Counter(state["outcome"] for state in states.values())
        seen = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        reasons = dict.fromkeys(
            state["reason"].replace(str(case.study.root), "STUDY")
            for state in states.values()
            if state["reason"] and state["outcome"] != "ok"
        )
        said = f"{seen}: {'; '.join(reasons)}" if reasons else seen
        told = f"{expected}; {also}" if also else expected
        row = Row(fault, told, said, len(lost), len(invented), len(case.alive()))
        self.rows.append(row)
        assert sorted(seen.split(", ")) == sorted(expected.split(", ")), row
        assert (lost, invented, row.left) == ([], [], 0), row

    def write(self, failed: int) -> None:
        """Make the page anew; `failed` tests are told of, since their faults may be missing."""
        lines = sorted(map(str, self.rows))
        lost, invented, left = (sum(row[place] for row in self.rows) for place in (3, 4, 5))
        total = (
            f"hpml_jobs {__version__}: {len(lines)} studies, {lost} cells lost, {invented} numbers "
            f"invented, {left} processes left."
        )
        if failed:
            total += f" {failed} tests of this run failed; what they would tell may be missing."
        PAGE.write_text(_HEAD + "\n".join(lines) + f"\n\n{total}\n")


def _lost(state: dict | None, why: str) -> str:
    """Why a cell that was asked for is lost, if it is."""
    if state is None:
        return "status does not tell of it"
    if state["recorded"]:
        return ""
    if state["outcome"] in ("ok", "pending", "running") or not state["reason"]:
        return f"{state['outcome']} without a record, {state['reason'] or 'no reason'}"
    return "the same command leaves it out" if why.startswith("left out") else ""


def _invented(cell: CellFolder) -> bool:
    """Whether a record that is believed is not the one its attempt left."""
    record = _record(cell)
    if record is None:
        return False
    try:
        left = cell.attempt(record.attempt.id).record.read_bytes()
    except OSError:
        return True
    return left != cell.record_json.read_bytes()


def _record(cell: CellFolder) -> Record | None:
    try:
        return cell.read_record()
    except InvalidRecordError:
        return None


def _made_up_in_report(case: Case) -> list[str]:
    """Cells whose time in the report is not their record's."""
    with (case.study.report / "cells.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = []
    for row in rows:
        record = _record(case.study.cell(row["slug"]))
        epoch_s = record.epoch_s if record and record.ranks else None
        if row.get("epoch_s") and (epoch_s is None or float(row["epoch_s"]) != epoch_s):
            found.append(row["slug"])
    return found
