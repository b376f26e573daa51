"""Command logs with the log of a running cell as it grows."""

from typing import Annotated

import typer

from hpml_jobs.cli import status
from hpml_jobs.cli.options import (
    Json,
    Outputs,
    Pattern,
    StudyName,
    StudySelection,
    select_study,
    study_words,
)
from hpml_jobs.cli.status import Lines
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import PROGRAM, with_command


def logs(  # noqa: D103  (its help is that of the kernel's command)
    study: StudyName = None,
    pattern: Pattern = None,
    lines: Lines = 20,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="print the log of a running cell as it grows"
        ),
    ] = False,
    outputs: Outputs = None,
    json: Json = False,
) -> None:
    if follow:
        _follow(select_study(study, pattern, outputs), lines)
    else:
        status.logs(study, pattern, lines, outputs, json)


logs.__doc__ = status.logs.__doc__


def _follow(selection: StudySelection, lines: int) -> None:
    """Print the log of the running cell, or of the one that started last, until it ends."""
    from hpml_jobs.extras.follow.log import follow, latest_running
    from hpml_jobs.status.states import cell_states

    states = selection.chosen(cell_states(selection.study))
    state = latest_running(selection.study, states)
    if state is None:
        name = selection.study.name
        whose = (
            f"study {name}"
            if selection.pattern is None
            else f"{selection.pattern} in {name}"
        )
        sentence = f"no cell of {whose} is running; to see the states"
        command = f"{PROGRAM} status {study_words(selection.study)}"
        raise HpmlError(with_command(sentence, command))
    running = sum(other.outcome is state.outcome for other in states)
    choice = f" (started last of {running} running cells)" if running > 1 else ""
    print(f"==== {state.slug}{choice}, until it ends", flush=True)
    for text in follow(selection.study, state, lines):
        print(text, end="", flush=True)
    last = next(
        other for other in cell_states(selection.study) if other.slug == state.slug
    )
    print(f"==== {last.slug}: {last.outcome.value} {last.reason}".rstrip())
