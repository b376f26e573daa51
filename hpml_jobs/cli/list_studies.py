"""Command list."""

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from rich.table import Table
from rich.text import Text

from hpml_jobs.cli.console import COLOURS, console, print_json
from hpml_jobs.cli.options import Json, Outputs, cluster_of, outputs_of
from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.selection import all_studies, no_study, submitted_at
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    from hpml_jobs.status.states import StudyStatus


class Listed(NamedTuple):
    """One study in a line: its cells by state, and what they measure; `fault` if unreadable."""

    study: str
    submitted: str  # local date and time
    cluster: str
    workloads: tuple[str, ...]
    cells: dict[str, int]
    fault: str = ""


def list_(outputs: Outputs = None, json: Json = False) -> None:
    """List all studies: cells by state, date of the last submission, cluster, workload.

    SLURM is asked only for studies with unfinished cells.

    Example: hpml-jobs list
    """
    folder = outputs_of(outputs)
    listed = [_listed(study) for study in all_studies(folder)]
    if json:
        print_json({"outputs": str(folder), "studies": [one._asdict() for one in listed]})
        return
    if not listed:
        raise no_study(folder)
    console().print(_table(listed))


def _listed(study: Study) -> Listed:
    from hpml_jobs.status.states import study_status

    moment = datetime.fromtimestamp(submitted_at(study.root), UTC).astimezone()
    submitted = moment.strftime("%Y-%m-%d %H:%M")
    last = cluster_of(study)
    cluster = last.name if last else ""
    try:
        study.check_schema()
        status = study_status(study)
    except HpmlError as fault:
        return Listed(study.name, submitted, cluster, (), {}, str(fault))
    counts = Counter(state.outcome for state in status.states)
    cells = {outcome.value: counts[outcome] for outcome in Outcome if counts[outcome]}
    return Listed(study.name, submitted, cluster, _workloads(status), cells)


def _workloads(status: "StudyStatus") -> tuple[str, ...]:
    names = (snapshot.file.cell.workload.name for snapshot in status.snapshots if snapshot.file)
    return tuple(sorted(set(names)))


def _table(listed: list[Listed]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("study", "submitted", "cluster", "workload"):
        table.add_column(head, no_wrap=head != "workload")
    table.add_column("cells")
    for one in listed:
        cells = Text(one.fault, style="red") if one.fault else _states(one.cells)
        workloads = ", ".join(one.workloads) or "\N{EN DASH}"
        table.add_row(one.study, one.submitted, one.cluster or "\N{EN DASH}", workloads, cells)
    return table


def _states(cells: dict[str, int]) -> Text:
    """Return the number of cells by state, in the states' colours."""
    parts = [
        Text(f"{number} {name}", style=COLOURS.get(Outcome(name), "red"))
        for name, number in cells.items()
    ]
    return Text(", ").join(parts) if parts else Text("none")
