"""Command list."""

from hpml_jobs.cli.console import console, print_json
from hpml_jobs.cli.options import Json, Outputs, outputs_of
from hpml_jobs.study.selection import all_studies, no_study


def list_(outputs: Outputs = None, json: Json = False) -> None:
    """List all studies: cells by state, date of the last submission, cluster, workload.

    Imported numbers are marked. SLURM is asked only for studies with unfinished cells.

    Example: hpml-jobs list
    """
    from hpml_jobs.cli.listing import (
        listed_study,
        status_or_fault,
        studies_table,
    )

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
