"""Commands archive and unpack: a study as one file, and back."""

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpml_jobs.cli.options import Json, Outputs, StudyName, find_study, outputs_words
from hpml_jobs.core.text import counted
from hpml_jobs.errors import HpmlError, UsageError

if TYPE_CHECKING:
    from hpml_jobs.study.study import Study

SUFFIX = ".tar.gz"

PAGE = "report.html"


def archive(
    study: StudyName = None,
    outputs: Outputs = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="file to write; default: ./STUDY.tar.gz"),
    ] = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="replace the names of hosts and UUIDs too")
    ] = False,
    logs: Annotated[
        bool, typer.Option("--logs", help="include the logs of jobs and cells")
    ] = False,
    traces: Annotated[
        bool, typer.Option("--traces", help="include the profiler's traces (large)")
    ] = False,
    json: Json = False,
) -> None:
    """Pack a study into one file for publication: records, settings, report, hashes.

    Home folders, login names in paths, accounts, email addresses, passwords and tokens are replaced
    (docs/share.md). The same study gives the same bytes. hpml-jobs import makes a study of it.

    Example: hpml-jobs archive digits-local --to results.tar.gz
    """
    from hpml_jobs.cli.console import print_json
    from hpml_jobs.study.archive import PackOptions, pack

    if traces and anonymous:
        raise UsageError(
            "--traces with --anonymous: traces are not searched for names; leave one out"
        )
    selected = find_study(study, outputs)
    file = Path(f"{selected.name}{SUFFIX}") if to is None else to.expanduser()
    options = PackOptions(anonymous=anonymous, logs=logs, traces=traces)
    with tempfile.TemporaryDirectory() as folder:
        report = _new_report(selected, Path(folder))
        packed = pack(selected, file, options, report)
    _warn(selected, packed.secrets, packed.note.left_out, is_new=report is not None)
    if json:
        print_json({"file": str(file), "bytes": packed.size, "note": packed.note})
        return
    cells = f"{counted(packed.note.cells, 'cell')}, {packed.note.records} with a record"
    print(f"written: {file} ({packed.size / 1e6:.3g} MB, {packed.files} files; {cells})")
    if not anonymous and selected.manifest.exists():  # else it was imported
        print("host names are in it: --anonymous replaces them, too")
    print(f"to read it: hpml-jobs import {file} --outputs FOLDER")


def _new_report(study: "Study", folder: Path) -> Path | None:
    """Make the study's report in `folder` if it has no page; None if it has one."""
    if (study.report / PAGE).is_file():
        return None
    from hpml_jobs.report.folder import write_all
    from hpml_jobs.report.report import make_report
    from hpml_jobs.status.states import study_status

    status = study_status(study)
    write_all(make_report(study.name, status.snapshots, status.states), folder)
    return folder


def _warn(
    study: "Study", secrets: dict[str, int], left_out: tuple[str, ...], *, is_new: bool
) -> None:
    """Say what was removed or left out, and that a report is older than the records."""
    for name, count in secrets.items():
        values = counted(count, "value")
        print(f"{name}: {values} that looks like a password or token removed", file=sys.stderr)
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    if not is_new and _is_older(study):
        print(
            f"warning: the report is older than the records: hpml-jobs report {study.name} writes "
            "it again",
            file=sys.stderr,
        )


def _is_older(study: "Study") -> bool:
    """Return whether a record was written after the report."""
    written = (study.report / PAGE).stat().st_mtime
    records = (cell.record_json for cell in study.cells())
    return any(path.stat().st_mtime > written for path in records if path.exists())


def unpack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="archive of a study")],
    outputs: Outputs = None,
    json: Json = False,
) -> None:
    """Do the same as import FILE.tar.gz.

    SLURM is not asked about the cells of such a study, and no cell can be submitted to it.

    Example: hpml-jobs unpack results.tar.gz --outputs published
    """
    from hpml_jobs.cli.console import print_json
    from hpml_jobs.core.paths import resolve_path
    from hpml_jobs.plan.user_config import user_outputs
    from hpml_jobs.study.unpack import unpack as read_archive

    if not file.expanduser().exists():
        raise HpmlError(f"{file} does not exist")
    folder = resolve_path(user_outputs() if outputs is None else outputs)
    study, note = read_archive(file.expanduser(), folder)
    if json:
        print_json({"study": study.name, "folder": str(study.root), "note": note})
        return
    cells = f"{counted(note.cells, 'cell')}, {note.records} with a record"
    print(f"study {study.name} in {study.root}: {cells}; all hashes match")
    print(f"next: hpml-jobs collect {study.name}{outputs_words(outputs)}")
