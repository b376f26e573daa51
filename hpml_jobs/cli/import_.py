"""Command import."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpml_jobs.cli.console import print_json
from hpml_jobs.cli.options import Json, Outputs, outputs_of, study_words
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import resolve_path
from hpml_jobs.core.text import PROGRAM, counted, with_command
from hpml_jobs.study.files import read_bytes, reading
from hpml_jobs.study.selection import check_name
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    from hpml_jobs.study.timings import ImportChanges

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

    file, name = _parsed(words or [])
    study = Study(resolve_path(outputs_of(outputs)) / check_name(name))
    with reading(file):
        content = read_bytes(file.expanduser())
    changes = write_study(study, read_timings(content, file.name), file.name)
    if json:
        print_json(
            {"study": study.name, "folder": str(study.root), **changes._asdict()}
        )
        return
    _print_changes(changes, file.name)
    print(f"study {study.name} in {study.root}")
    print(with_command("next", f"{PROGRAM} collect {study_words(study)}"))


def _parsed(words: list[str]) -> tuple[Path, str]:
    """Return the file to import, and the name of the study that it becomes."""
    named = [word for word in words if word.startswith(KEY)]
    files = [word for word in words if word not in named]
    for word in files:
        if word.endswith((".tar.gz", ".tgz")):
            unpack = shlex.join(["tar", "xzf", word, "-C", "outputs"])
            raise UsageError(f"{word} is an archive; it becomes a study by: {unpack}")
    if len(files) != 1 or len(named) != 1:
        raise UsageError(
            "import takes one file and one name: import FILE.csv study=NAME; all else is a column "
            "of the table (docs/share.md)"
        )
    return Path(files[0]), named[0].removeprefix(KEY)


def _print_changes(changes: "ImportChanges", file: str) -> None:
    by_change = changes._asdict()
    parts = [f"{len(slugs)} {change}" for change, slugs in by_change.items() if slugs]
    rows = sum(map(len, changes[:3]))  # all but the removed ones
    print(f"imported {counted(rows, 'row')} of {file}: {', '.join(parts)}")
    for slug in changes.removed:
        print(f"removed {slug}: its row is gone")
