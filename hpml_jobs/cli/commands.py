"""Table of the commands, and the typer program made of them."""

import shlex
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

PROGRAM = "hpml-jobs"

COMPLETION_VARIABLE = "_HPML_JOBS_COMPLETE"
"""Set by the shell's completion script: this run answers the shell. typer derives the name."""

COMMANDS = {
    "submit": "cli.submit:submit",
    "plan": "cli.submit:plan",
    "run": "cli.run:run",
    "fetch": "cli.run:fetch",
    "import": "cli.import_csv:import_",
    "list": "cli.list_studies:list_",
    "status": "cli.status:status",
    "watch": "cli.status:watch",
    "logs": "cli.status:logs",
    "record": "cli.record:record",
    "cancel": "cli.jobs:cancel",
    "resubmit": "cli.jobs:resubmit",
    "collect": "cli.collect:collect",
    "report": "cli.report:report",
    "choose": "cli.choose:choose",
    "predict": "cli.predict:predict",
    "archive": "cli.archive:archive",
    "unpack": "cli.archive:unpack",
    "export": "cli.export:export",
    "init": "cli.init:init",
    "compare": "cli.compare:compare",
    "reference": "cli.reference:reference",
    "doctor": "cli.doctor:doctor",
    "completion": "cli.completion:completion",
}
"""The function of every command, as module:name in this package; imported only when needed."""

UNNAMED = "submit"
"""The command of a line that names none."""

OLD_NAMES = {
    "watch": "status --watch",
    "unpack": "import FILE.tar.gz",
    "reference": "compare --save",
}
"""Commands that others do too, kept until version 1.0; help does not list them."""


def function_of(command: str) -> Callable[..., Any]:
    """Import and return a command's function."""
    module, _, name = COMMANDS[command].partition(":")
    function: Callable[..., Any] = getattr(import_module(f"hpml_jobs.{module}"), name)
    return function


def typer_program(names: Iterable[str] = COMMANDS) -> "typer.Typer":
    """Return a typer program with these commands."""
    import typer

    program = typer.Typer(
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback()(lambda: None)  # keeps the command's name, even if there is only one
    for name in names:
        program.command(name, hidden=name in (UNNAMED, *OLD_NAMES))(function_of(name))
    return program


_words: list[str] = []


def remember(words: list[str]) -> None:
    """Keep the words after the program's name."""
    _words[:] = words


def repeated() -> str:
    """Return the present command as it can be typed again."""
    return shlex.join([PROGRAM, *_words])
