"""Command import."""

from pathlib import Path
from typing import Annotated

import typer

from hpml_jobs.cli.console import print_json
from hpml_jobs.cli.options import Json, Outputs, outputs_of, study_words
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import resolve_path
from hpml_jobs.core.text import PROGRAM, counted, with_command
from hpml_jobs.study.files import read_bytes, reading
from hpml_jobs.study.selection import check_name
from hpml_jobs.study.study import Study

KEY = "study="

FileAndStudy = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE study=NAME",
        help="a table of runs as CSV; name of the new study",
    ),
]


def import_(
    words: FileAndStudy = None, outputs: Outputs = None, json: Json = False
) -> None:
    """Make a study from timings of another program: a CSV table with a row for each run.

    Its columns are gpus, batch (per GPU) and epoch_s, or images (of an epoch) and images_per_s; it
    may have run, nodes, strategy, gpu_type, loss and accuracy. Rows with the same GPUs,
    batch and strategy are repeats. See docs/share.md, also for a history of W&B.

    Example: hpml-jobs import docs/published.csv study=published
    """
    from hpml_jobs.study.timings import read_timings, write_study

    named = [word for word in words or () if word.startswith(KEY)]
    files = [word for word in words or () if word not in named]
    if len(files) != 1 or len(named) != 1:
        raise UsageError(
            "import takes one file and one name: import FILE.csv study=NAME; all else is a column "
            "of the table (docs/share.md)"
        )
    file, name = Path(files[0]), named[0].removeprefix(KEY)
    study = Study(resolve_path(outputs_of(outputs)) / check_name(name))
    with reading(file):
        content = read_bytes(file.expanduser())
    records = read_timings(content, file.name)
    write_study(study, records)
    if json:
        slugs = [record.slug for record in records]
        print_json({"study": study.name, "folder": str(study.root), "cells": slugs})
        return
    print(f"imported {counted(len(records), 'row')} of {file.name}")
    print(f"study {study.name} in {study.root}")
    print(with_command("next", f"{PROGRAM} collect {study_words(study)}"))
