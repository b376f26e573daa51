"""Command export."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from hpml_jobs.cli.completion import exported as completed
from hpml_jobs.cli.options import Outputs, find_study
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.exchange.formats import Format, writer

FORMATS = tuple(form.value for form in Format)


def export(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[STUDY] FORMAT",
            help=f"study, default: the most recently submitted; {', '.join(FORMATS)}",
            autocompletion=completed,
        ),
    ],
    outputs: Outputs = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FOLDER",
            help="folder of the files; default: export/FORMAT in the study",
        ),
    ] = None,
) -> None:
    """Write a study for Weights & Biases, MLflow, TensorBoard or Extra-P: offline runs and files.

    Nothing is sent anywhere. Exporting again replaces the same runs.

    Example: hpml-jobs export digits-local tensorboard
    """
    *names, form = words
    if form not in FORMATS or len(names) > 1:
        raise UsageError(f"export {' '.join(words)}: give a study, then {' or '.join(FORMATS)}")
    study = find_study(names[0] if names else None, outputs)
    write = writer(Format(form))
    from hpml_jobs.exchange.runs import exported
    from hpml_jobs.report.report import make_report
    from hpml_jobs.status.states import study_status

    status = study_status(study)
    content = exported(study, make_report(study.name, status.snapshots, status.states))
    if not content.runs:
        raise HpmlError(
            f"no cell of study {study.name} has a record; hpml-jobs status {study.name} shows why"
        )
    folder = study.root / "export" / form if to is None else to.expanduser()
    try:
        written = write(content, folder)
    except OSError as fault:
        raise HpmlError(
            f"{folder} cannot be written: {fault.strerror}; name another with --to FOLDER"
        ) from fault
    for note in (*content.notes, *written.notes):
        print(note, file=sys.stderr)
    print(f"exported {written.what} of study {study.name} to {folder}")
    print(f"next: {written.command}")
