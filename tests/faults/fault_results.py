"""Count what a fault cost (lost cells, invented numbers, leftover processes); write the results."""

import contextlib
import csv
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from hpml_jobs import __version__
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import InvalidRecordError
from hpml_jobs.study.cell_folder import CellFolder
from tests.faults.fault_study import FaultStudy
from tests.patience import wait_until
from tests.rig import processes

RESULTS = Path(__file__).parents[2] / "docs" / "faults.csv"
HEAD = (
    "fault",
    "expected",
    "seen",
    "lost_cells",
    "invented_numbers",
    "processes_left",
    "version",
)


class FaultResult(NamedTuple):
    """One line of the results."""

    fault: str
    expected: str
    seen: str
    lost: int
    invented: int
    left: int


class FaultResults:
    """The results of all faults of one test run."""

    def __init__(self) -> None:
        self.rows: list[FaultResult] = []

    def __call__(
        self, fault: str, case: FaultStudy, expected: str, also: str = ""
    ) -> None:
        """Count what a fault cost a finished study, and assert that it cost nothing.

        `expected` are the outcomes, e.g. "1 ok, 1 cancelled"; `also` names what else the test
        asserted, for the results.
        """
        states, actions = case.states(), case.planned_actions()
        case.collect()
        lost = [
            slug for slug, why in actions.items() if _lost_cells(states.get(slug), why)
        ]
        invented = [
            cell.slug for cell in case.study.cells() if _has_invented_number(cell)
        ]
        invented += _invented_in_report(case)
        # the processes that are left are counted below
        with contextlib.suppress(AssertionError):
            wait_until(
                lambda: not case.alive_processes(),
                "no process of the study is left",
            )
        outcomes = Counter(state["outcome"] for state in states.values())
        seen = ", ".join(
            f"{count} {outcome}" for outcome, count in sorted(outcomes.items())
        )
        reasons = dict.fromkeys(
            _without_folders(state["reason"].replace(str(case.study.root), "STUDY"))
            for state in states.values()
            if state["reason"] and state["outcome"] != "ok"
        )
        seen_text = f"{seen}: {'; '.join(reasons)}" if reasons else seen
        expected_text = f"{expected}; {also}" if also else expected
        left = case.alive_processes()
        row = FaultResult(
            fault, expected_text, seen_text, len(lost), len(invented), len(left)
        )
        self.rows.append(row)
        assert sorted(seen.split(", ")) == sorted(expected.split(", ")), row
        assert (lost, invented) == ([], []), row
        assert not left, [processes.command_of(pid) for pid in left]

    def write(self) -> None:
        """Write docs/faults.csv, which docs/measured.md summarizes."""
        with RESULTS.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(HEAD)
            writer.writerows((*row, __version__) for row in sorted(self.rows))


def _without_folders(reason: str) -> str:
    """Return a reason that names source files without their folders.

    >>> _without_folders("rank 0 was in /home/me/models.py, line 4")
    'rank 0 was in models.py, line 4'
    """
    return re.sub(r"/\S*/(?=\w+\.py\b)", "", reason)


def _lost_cells(state: dict | None, why: str) -> str:
    """Return why a requested cell is lost, or an empty text."""
    if state is None:
        return "it is not in status"
    if state["recorded"]:
        return ""
    if state["outcome"] in ("ok", "pending", "running") or not state["reason"]:
        return f"{state['outcome']} without a record, {state['reason'] or 'no reason'}"
    return (
        "the same command does not submit it again"
        if why.startswith("left out")
        else ""
    )


def _has_invented_number(cell: CellFolder) -> bool:
    """Return whether a published record differs from the one that its attempt left."""
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


def _invented_in_report(case: FaultStudy) -> list[str]:
    """Return the cells whose time in the report differs from their record."""
    with (case.study.report / "cells.csv").open() as file:
        rows = list(csv.DictReader(file))
    invented = []
    for row in rows:
        record = _record(case.study.cell(row["slug"]))
        epoch_s = record.epoch_s if record and record.ranks else None
        if row.get("epoch_s") and (epoch_s is None or float(row["epoch_s"]) != epoch_s):
            invented.append(row["slug"])
    return invented
