"""Commands report with what is handed in, and list of the folders of a course."""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hpml_jobs.cli import collect, status
from hpml_jobs.cli.collect import IsOpened, PageFolder, current_report, open_page
from hpml_jobs.cli.console import console, print_json
from hpml_jobs.cli.options import REPORT_KEYS, Json, Outputs, ReportWords, find_study, parse_words
from hpml_jobs.cli.status import listed_study, status_or_fault
from hpml_jobs.core.errors import UsageError


def report(  # noqa: D103  (its help is that of the kernel's command)
    words: ReportWords = None,
    outputs: Outputs = None,
    to: PageFolder = None,
    handin: Annotated[
        Path | None,
        typer.Option(
            "--handin",
            metavar="FOLDER",
            help="write into FOLDER what is handed in: page, PDF, text to edit, README, script, "
            "notebook",
        ),
    ] = None,
    student: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="your name, for --handin")
    ] = None,
    number: Annotated[
        str | None,
        typer.Option("--number", metavar="NUMBER", help="your student number, for --handin"),
    ] = None,
    is_opened: IsOpened = False,
) -> None:
    if handin is None:
        if student is not None or number is not None:
            raise UsageError("--name and --number are for a hand-in: add --handin FOLDER")
        collect.report(words, outputs, to, is_opened)
        return
    name, values = parse_words("report", words, REPORT_KEYS)
    if to:
        raise UsageError("--handin and --to are both given: leave one of them out")
    contents, _ = current_report(find_study(name, outputs), values)
    from hpml_jobs.extras.course.handin import PDF, SCRIPT, Student, write_handin
    from hpml_jobs.report.page import HTML, MARKDOWN

    folder = handin.expanduser()
    written = write_handin(contents, folder, Student(student, number))
    files = [path.name for path in written if path.parent == folder]
    print(f"written: {', '.join([*files, 'data/*.csv'])} in {folder}")
    if MARKDOWN not in files:
        print(f"kept: {MARKDOWN}, which may have your words; move it away to get a new one")
    if PDF not in files:
        print(f"no {PDF}: Chromium is not here; open {HTML} in a browser and save it as PDF")
    if SCRIPT not in files:
        print(f"no {SCRIPT}: it repeats no cell of this study; README.md has the reason")
    if is_opened:
        open_page(folder / HTML)


report.__doc__ = collect.report.__doc__


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
    and the speedup on the most GPUs. Numbers from a CSV file or an archive are marked as imported.
    SLURM is asked only for studies with unfinished cells.

    Example: hpml-jobs list
    """
    if not folders:
        status.list_(outputs, json)
        return
    if outputs is not None:
        raise UsageError(f"--outputs {outputs} with {folders[0]}: leave one of them out")
    from hpml_jobs.extras.course.folders import holding_of, studies_in, studies_table, unfinished

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
            {**msgspec.structs.asdict(line), **holding._asdict(), "unfinished": unfinished(line)}
            for line, holding in pairs
        ]
        print_json({"folders": list(map(str, folders)), "studies": lines})
        return
    console().print(studies_table(listed, holdings))
