"""Command list: each study in a line: cells by state, when and where it was submitted, of what."""

from collections import Counter
from datetime import UTC, datetime

from msgspec.structs import replace
from rich.text import Text

from hpml_jobs.cli.console import console, plain_table, print_json
from hpml_jobs.cli.options import Json, Outputs, outputs_of
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.value import Value
from hpml_jobs.status.states import study_status
from hpml_jobs.study.selection import all_studies, no_study, submitted_at
from hpml_jobs.study.study import Study


class Listed(Value, frozen=True, kw_only=True):
    """One study in a line: its cells by state, and what they measure; `fault` if unreadable."""

    study: str
    submitted: str  # local date and time
    cluster: str
    workloads: tuple[str, ...] = ()
    cells: dict[str, int] = {}
    fault: str = ""


def list_(outputs: Outputs = None, json: Json = False) -> None:
    """List all studies: cells by state, date of the last submission, cluster, workload.

    SLURM is asked only for studies with unfinished cells.

    Example: hpml-jobs list
    """
    folder = outputs_of(outputs)
    listed = [_listed(study) for study in all_studies(folder)]
    if json:
        print_json({"outputs": str(folder), "studies": listed})
        return
    if not listed:
        raise no_study(folder)
    table = plain_table(("study", "submitted", "cluster"), ("workload", "cells"))
    for line in listed:
        states = [f"{number} {state}" for state, number in line.cells.items()]
        cells = line.fault or ", ".join(states) or "none"
        workloads = ", ".join(line.workloads)
        table.add_row(line.study, line.submitted, line.cluster, workloads, Text(cells))
    console().print(table)


def _listed(study: Study) -> Listed:
    submitted_s = submitted_at(study.root)
    moment = datetime.fromtimestamp(submitted_s, UTC).astimezone()
    about = Listed(
        study=study.name,
        submitted=moment.strftime("%Y-%m-%d %H:%M") if submitted_s else "",
        cluster=last.name if (last := study.last_cluster()) else "",
    )
    try:
        study.check_schema()
        status = study_status(study)
    except HpmlError as fault:
        return replace(about, fault=str(fault))
    cells = [snapshot.file.cell for snapshot in status.snapshots if snapshot.file]
    counts = Counter(state.outcome.value for state in status.states)
    return replace(
        about,
        workloads=tuple(sorted({cell.workload.name for cell in cells})),
        cells=dict(counts.most_common()),
    )
