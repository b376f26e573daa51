"""Command list."""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hpml_jobs.cli.console import console, print_json
from hpml_jobs.cli.options import Json, Outputs, outputs_of
from hpml_jobs.core.errors import UsageError
from hpml_jobs.study.selection import all_studies, no_study

Folders = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FOLDER",
        help="studies, or folders such as course/*/ with studies in them or in their outputs/; "
        "default: the folder of --outputs",
    ),
]


def list_(folders: Folders = None, outputs: Outputs = None, json: Json = False) -> None:
    """List all studies: cells by state, date of the last submission, cluster, workload.

    Of FOLDERs, also the owner, the size on disk, whether each study is ready (all cells finished),
    and the speedup on the most GPUs. Numbers from a CSV file are marked as imported.
    SLURM is asked only for studies with unfinished cells.

    Example: hpml-jobs list
    """
    if folders:
        _list_folders(folders, outputs, json=json)
    else:
        _list(outputs_of(outputs), json=json)


def _list(folder: Path, *, json: bool) -> None:
    from hpml_jobs.extras.studies.listing import (
        listed_study,
        status_or_fault,
        studies_table,
    )

    listed = [
        listed_study(study, status_or_fault(study)) for study in all_studies(folder)
    ]
    if json:
        print_json({"outputs": str(folder), "studies": listed})
        return
    if not listed:
        raise no_study(folder)
    console().print(studies_table(listed))


def _list_folders(folders: list[Path], outputs: Path | None, *, json: bool) -> None:
    if outputs is not None:
        raise UsageError(
            f"--outputs {outputs} with {folders[0]}: leave one of them out"
        )
    from hpml_jobs.extras.studies.folders import (
        holding_of,
        holdings_table,
        studies_in,
        unfinished,
    )
    from hpml_jobs.extras.studies.listing import listed_study, status_or_fault

    studies = []
    for folder in folders:
        inside = studies_in(folder.expanduser())
        studies += inside
        if not inside:
            print(f"no study in {folder}", file=sys.stderr)
    statuses = [status_or_fault(study) for study in studies]
    listed = [*map(listed_study, studies, statuses)]
    holdings = [*map(holding_of, studies, statuses)]
    if json:
        pairs = zip(listed, holdings, strict=True)
        lines = [
            {
                **msgspec.structs.asdict(line),
                **holding._asdict(),
                "unfinished": unfinished(line),
            }
            for line, holding in pairs
        ]
        print_json({"folders": list(map(str, folders)), "studies": lines})
        return
    console().print(holdings_table(listed, holdings))
