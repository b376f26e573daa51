"""Which study a command means, and the options that commands on a study share."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from hpml_jobs.study import Study, find

StudyName = Annotated[str | None, typer.Argument(metavar="[STUDY]", help="default: sent last")]
Outputs = Annotated[
    Path | None, typer.Option("--outputs", help="the folder studies are written to")
]
Json = Annotated[bool, typer.Option("--json", help="for programs: JSON on standard output")]
Strict = Annotated[bool, typer.Option("--strict", help="exit 1 unless all cells have a record")]


def outputs_words(outputs: Path | None) -> str:
    """What a command must be told to look in another folder than the usual one, if it must."""
    return f" --outputs {shlex.quote(str(outputs))}" if outputs else ""


def find_study(study: str | None, outputs: Path | None) -> Study:
    """The study asked for, or the one sent last, said so."""
    if outputs is None:
        from hpml_jobs.submit.personal import personal_outputs  # noqa: PLC0415

        outputs = personal_outputs()
    found = find(outputs.expanduser(), study)
    if study is None:
        print(f"study {found.name} (the one sent last)", file=sys.stderr)
    return found
