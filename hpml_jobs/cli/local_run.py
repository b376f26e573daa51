"""Cells run on this machine: a line per cell as it ends, then the next command."""

import sys
from typing import TYPE_CHECKING

from hpml_jobs.cli.console import print_json
from hpml_jobs.cli.hints import next_commands
from hpml_jobs.core.text import counted
from hpml_jobs.errors import HpmlError
from hpml_jobs.study.attempt import Progress
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    from hpml_jobs.plan.plan import Plan
    from hpml_jobs.status.states import StudyStatus
    from hpml_jobs.submit.selection import Selection


def run_here(plan: "Plan", selection: "Selection", *, json: bool) -> None:
    """Run the selected cells one after another.

    Raises:
        HpmlError: a cell did not finish.
    """
    from hpml_jobs.status.states import study_status

    out = sys.stderr if json else sys.stdout
    total, left_out = len(selection.send), len(selection.left_out)
    left = f", {left_out} left out (finished, pending or running)" if left_out else ""
    print(f"study {plan.study.name}: {counted(total, 'cell')} to run{left}", file=out)
    ended = _run_cells(plan, selection, json=json)
    status = study_status(plan.study, with_checks=json)
    ended_states = [state for state in status.states if state.slug in ended]
    if json:
        study = {"study": plan.study.name, "folder": str(plan.study.root)}
        print_json(study | {"cells": ended_states})
    if plan.collect_after:
        _write_report(plan.study, status)
        print(f"the report is in {plan.study.report}", file=out)
    failed = sum(not state.outcome.finished for state in ended_states)
    if failed < max(1, total):
        print(next_commands(plan, watch=False), file=out)
    if failed:
        raise HpmlError(
            f"{failed} of {total} cells did not finish; see hpml-jobs logs {plan.study.name}"
        )


def _run_cells(plan: "Plan", selection: "Selection", *, json: bool) -> set[str]:
    """Run the cells with a progress line on stderr; return the names of those that ended."""
    from hpml_jobs.cli.console import Console
    from hpml_jobs.submit.local import run_all

    out = sys.stderr if json else sys.stdout
    total = len(selection.send)
    ended: set[str] = set()
    with Console(stderr=True).status("starting") as status:

        def show_progress(index: int, folder: CellFolder, progress: Progress) -> None:
            has_begun = bool(progress.epochs)
            epoch = f"epoch {progress.epoch} of {progress.epochs}" if has_begun else "starting"
            status.update(f"cell {index + 1} of {total}: {folder.slug}, {epoch}")

        def show_end(folder: CellFolder) -> None:
            ended.add(folder.slug)
            print(f"  {len(ended)}/{total}  {_cell_line(folder)}", flush=True, file=out)

        run_all(plan, selection.send, show_progress, show_end)
    return ended


def _cell_line(folder: CellFolder) -> str:
    """Return an ended cell in one line: its epoch time and accuracies, or why it has none."""
    end = folder.last_end()
    record = folder.read_record() if end and end.outcome.finished else None
    if record is not None and record.ranks:
        accuracies = {"training accuracy": record.accuracy, "test": record.ranks[0].test_accuracy}
        shown = (f"{name} {share:.3f}" for name, share in accuracies.items() if share is not None)
        return f"{folder.slug:44} epoch {record.epoch_s:8.3f} s   {', '.join(shown)}".rstrip()
    outcome = end.outcome.value if end else "failed"
    return f"{folder.slug:44} {outcome}: {end.reason if end else 'ended without an exit report'}"


def _write_report(study: Study, status: "StudyStatus") -> None:
    from hpml_jobs.report.folder import write_all
    from hpml_jobs.report.report import ReportOptions, make_report

    options = ReportOptions(study.read_cluster(), study.commands())
    report = make_report(study.name, status.snapshots, status.states, options)
    write_all(report, study.report)
