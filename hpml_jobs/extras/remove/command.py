"""Command remove."""

from typing import TYPE_CHECKING, Annotated

import typer

from hpml_jobs.cli.completion import studies
from hpml_jobs.cli.console import print_json
from hpml_jobs.cli.options import Json, Outputs, find_study, study_words
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import PROGRAM, counted, few, with_command
from hpml_jobs.core.value import Value

if TYPE_CHECKING:
    from hpml_jobs.extras.remove.removal import Removal
    from hpml_jobs.study.study import Study


class About(Value, frozen=True, kw_only=True):
    """What is deleted of a study; `bytes` are those on disk."""

    study: str
    folder: str
    cells: int
    records: int
    files: int
    bytes: int

    def __str__(self) -> str:
        """In a line for people."""
        cells = f"{counted(self.cells, 'cell')}, {self.records} with a record"
        size = f"{counted(self.files, 'file')}, {self.bytes / 1e6:.3g} MB"
        return f"study {self.study} in {self.folder}: {cells}; {size}"


def remove(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY", help="name of the study", autocompletion=studies
        ),
    ],
    outputs: Outputs = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    json: Json = False,
) -> None:
    """Delete a study: its cells, records, logs and report. It cannot be undone.

    It says what is deleted, and asks. Refused while its jobs are pending or running, and if there
    is a file in its folder that hpml-jobs and its jobs did not write. Links are not followed.

    Example: hpml-jobs remove demo
    """
    from hpml_jobs.cli.submit import confirm
    from hpml_jobs.extras.remove.removal import remove_files, without_submission

    selected = find_study(study, outputs)
    removal = _checked(selected)
    about = About(
        study=selected.name,
        folder=str(selected.root.absolute()),
        cells=len(selected.cells()),
        records=sum(cell.record_json.is_file() for cell in selected.cells()),
        files=len(removal.files),
        bytes=removal.size,
    )
    if not json:
        print(about)
    if not yes:
        confirm("remove it?", "nothing was removed", "add --yes", json=json)
    with without_submission(selected):
        remove_files(selected, _checked(selected))
    if json:
        print_json(about)
    else:
        print(f"removed study {selected.name}")


def _checked(study: "Study") -> "Removal":
    """Return what is deleted, after the reasons not to.

    Raises:
        HpmlError: a job may run, or something else is in the folder.
    """
    from hpml_jobs.extras.remove.removal import refuse_foreign, removal_of
    from hpml_jobs.report.folder import FILES

    _refuse_active(study)
    removal = removal_of(study, FILES)
    refuse_foreign(study, removal)
    return removal


def _refuse_active(study: "Study") -> None:
    """Refuse to remove a study with a job that is, or may be, pending or running."""
    if study.is_unpacked:  # its jobs are another cluster's
        return
    from hpml_jobs.status.cancel import active_jobs, queued_jobs
    from hpml_jobs.status.states import study_status

    status = study_status(study, all_jobs=True)
    if status.fault:
        raise HpmlError(
            f"{status.fault}: it is unknown which jobs run; nothing was removed"
        )
    jobs = active_jobs(state for state in status.states if state.outcome.active)
    names = [*jobs, *queued_jobs(status.history.closing, study.closing_name)]
    if names:
        sentence = (
            f"study {study.name} has jobs that are pending or running ({few(names)})"
        )
        command = f"{PROGRAM} cancel {study_words(study)}"
        raise HpmlError(with_command(f"{sentence}; to cancel them", command))
    unknown = [state for state in status.states if state.outcome.may_run]
    if unknown:
        reason = unknown[0].reason or "SLURM does not say"
        cells = counted(len(unknown), "cell")
        raise HpmlError(
            f"it is unknown whether {cells} may run ({reason}); nothing was removed"
        )
