"""Merge the records of a study, with the states of its cells, into its report."""

from collections.abc import Iterable

from hpml_jobs.report.merge.cells import cell_results
from hpml_jobs.report.report import DEFAULTS, Report, ReportOptions, merge
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.snapshot import FolderSnapshot


def make_report(
    study: str,
    snapshots: Iterable[FolderSnapshot],
    states: Iterable[CellState],
    options: ReportOptions = DEFAULTS,
) -> Report:
    """Return the report of a study: `snapshots` hold the records, `states` why one is missing."""
    by_slug = {state.slug: state for state in states}
    return merge(study, cell_results(snapshots, by_slug), options)
