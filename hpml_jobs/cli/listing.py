"""Command list: each study in a line: cells by state, when and where it was submitted, of what."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from rich.table import Table
from rich.text import Text

from hpml_jobs.cli.console import COLOURS, console, plain_table, print_json
from hpml_jobs.cli.options import Json, Outputs, outputs_of
from hpml_jobs.core.cell import Outcome, Protocol
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.value import Value
from hpml_jobs.report.frame.numbers import DASH
from hpml_jobs.status.states import StudyStatus, study_status
from hpml_jobs.study.selection import all_studies, no_study, submitted_at
from hpml_jobs.study.study import Study


class Listed(Value, frozen=True, kw_only=True):
    """One study in a line: its cells by state, and what they measure; `fault` if unreadable."""

    study: str
    submitted: str  # local date and time
    cluster: str
    workloads: tuple[str, ...] = ()
    cells: dict[str, int] = {}
    imported: bool = False  # from a CSV file
    fault: str = ""


def status_or_fault(study: Study) -> StudyStatus | HpmlError:
    """Return the status of a study, or why it cannot be read."""
    try:
        study.check_schema()
        return study_status(study)
    except HpmlError as fault:
        return fault


def listed_study(study: Study, status: StudyStatus | HpmlError) -> Listed:
    """Return a study in a line, from its status or from why it cannot be read."""
    submitted_s = submitted_at(study.root)
    moment = datetime.fromtimestamp(submitted_s, UTC).astimezone()
    submitted = moment.strftime("%Y-%m-%d %H:%M") if submitted_s else ""
    cluster = last.name if (last := study.last_cluster()) else ""
    if isinstance(status, HpmlError):
        return Listed(
            study=study.name, submitted=submitted, cluster=cluster, fault=str(status)
        )
    counts = Counter(state.outcome for state in status.states)
    return Listed(
        study=study.name,
        submitted=submitted,
        cluster=cluster,
        workloads=_workloads(status),
        cells={
            outcome.value: counts[outcome] for outcome in Outcome if counts[outcome]
        },
        imported=_is_imported(status),
    )


def _is_imported(status: StudyStatus) -> bool:
    cells = (snapshot.file.cell for snapshot in status.snapshots if snapshot.file)
    return any(cell.protocol is Protocol.IMPORTED for cell in cells)


def _workloads(status: StudyStatus) -> tuple[str, ...]:
    names = (
        snapshot.file.cell.workload.name
        for snapshot in status.snapshots
        if snapshot.file
    )
    return tuple(sorted(set(names)))


STUDY_HEADINGS = ("study", "submitted", "cluster"), ("workload", "cells")
"""The headings of a study's line; texts of the last ones are folded."""


def study_row(study: Listed) -> tuple[str | Text, ...]:
    """Return the texts of a study's line."""
    cells = (
        Text(study.fault, style="red") if study.fault else _cells_by_state(study.cells)
    )
    if study.imported:
        cells.append(", imported")
    workloads = ", ".join(study.workloads) or DASH
    return study.study, study.submitted, study.cluster or DASH, workloads, cells


def _cells_by_state(cells: dict[str, int]) -> Text:
    """Return the number of cells by state, in the states' colours."""
    parts = [
        Text(f"{number} {name}", style=COLOURS.get(Outcome(name), "red"))
        for name, number in cells.items()
    ]
    return Text(", ").join(parts) if parts else Text("none")


def studies_table(listed: Iterable[Listed]) -> Table:
    """Return a line per study."""
    table = plain_table(*STUDY_HEADINGS)
    for study in listed:
        table.add_row(*study_row(study))
    return table


def list_(outputs: Outputs = None, json: Json = False) -> None:
    """List all studies: cells by state, date of the last submission, cluster, workload.

    Imported numbers are marked. SLURM is asked only for studies with unfinished cells.

    Example: hpml-jobs list
    """
    folder = outputs_of(outputs)
    listed = [
        listed_study(study, status_or_fault(study)) for study in all_studies(folder)
    ]
    if json:
        print_json({"outputs": str(folder), "studies": listed})
        return
    if not listed:
        raise no_study(folder)
    console().print(studies_table(listed))
