"""Table of the commands, and the typer program made of them."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import typer

COMPLETION_VARIABLE = "_HPML_JOBS_COMPLETE"
"""Set by the shell's completion script: typer answers the shell."""

UNNAMED = "submit"
"""The command of a line that names none."""


class HelpSection(StrEnum):
    """The part of the first page of help in which a command is listed."""

    SET_UP = "set up"
    SUBMIT = "submit"
    FOLLOW = "follow"
    RESULTS = "results"
    IN_AND_OUT = "in and out"


class Command(NamedTuple):
    """A command: what imports and returns its function, and its line on the first page of help."""

    function: Callable[[], Callable[..., None]]
    section: HelpSection
    usage: str
    meaning: str


def _init() -> Callable[..., None]:
    from hpml_jobs.cli.doctor import init

    return init


def _doctor() -> Callable[..., None]:
    from hpml_jobs.cli.doctor import doctor

    return doctor


def _submit() -> Callable[..., None]:
    from hpml_jobs.cli.submit import submit

    return submit


def _plan() -> Callable[..., None]:
    from hpml_jobs.cli.submit import plan

    return plan


def _run() -> Callable[..., None]:
    from hpml_jobs.cli.run import run

    return run


def _resubmit() -> Callable[..., None]:
    from hpml_jobs.cli.jobs import resubmit

    return resubmit


def _cancel() -> Callable[..., None]:
    from hpml_jobs.cli.jobs import cancel

    return cancel


def _list() -> Callable[..., None]:
    from hpml_jobs.cli.listing import list_

    return list_


def _status() -> Callable[..., None]:
    from hpml_jobs.cli.status import status

    return status


def _logs() -> Callable[..., None]:
    from hpml_jobs.cli.status import logs

    return logs


def _collect() -> Callable[..., None]:
    from hpml_jobs.cli.collect import collect

    return collect


def _import() -> Callable[..., None]:
    from hpml_jobs.cli.import_ import import_

    return import_


def _compare() -> Callable[..., None]:
    from hpml_jobs.cli.compare import compare

    return compare


COMMANDS: Mapping[str, Command] = {
    "init": Command(
        _init,
        HelpSection.SET_UP,
        "init",
        "write your defaults from what this cluster says",
    ),
    "doctor": Command(
        _doctor,
        HelpSection.SET_UP,
        "doctor KEY=VALUE...",
        "check the setup, with a short diagnostic job",
    ),
    UNNAMED: Command(
        _submit,
        HelpSection.SUBMIT,
        "submit KEY=VALUE...",
        "submit a study; the word submit can be left out",
    ),
    "plan": Command(
        _plan,
        HelpSection.SUBMIT,
        "plan KEY=VALUE...",
        "show cells, job scripts, GPU-hours; submit nothing",
    ),
    "run": Command(
        _run,
        HelpSection.SUBMIT,
        "run KEY=VALUE...",
        "run one cell here, e.g. inside an allocation",
    ),
    "resubmit": Command(
        _resubmit,
        HelpSection.SUBMIT,
        "resubmit [STUDY] ...",
        "submit cells again: --failed, --oom, --timeout, ...",
    ),
    "cancel": Command(
        _cancel,
        HelpSection.SUBMIT,
        "cancel [STUDY] [PATTERN]",
        "cancel this study's jobs",
    ),
    "list": Command(
        _list,
        HelpSection.FOLLOW,
        "list",
        "list all studies: cells by state, date, cluster",
    ),
    "status": Command(
        _status,
        HelpSection.FOLLOW,
        "status [STUDY] [PATTERN]",
        "show the state of every cell, and what to do next;\n"
        "--watch: live, until no cell is pending or running",
    ),
    "logs": Command(
        _logs,
        HelpSection.FOLLOW,
        "logs [STUDY] [PATTERN]",
        "show why cells failed; -f follows a running cell",
    ),
    "collect": Command(
        _collect,
        HelpSection.RESULTS,
        "collect [STUDY]",
        "print how much faster more GPUs are, and why;\nwrite the tables and the page",
    ),
    "import": Command(
        _import,
        HelpSection.IN_AND_OUT,
        "import FILE",
        "make a study of another program's timings",
    ),
    "compare": Command(
        _compare,
        HelpSection.RESULTS,
        "compare A [B]",
        "say which cells of B are faster or slower than A's;\n"
        "--save FILE keeps the numbers of a study for later",
    ),
}
"""All commands; the function of each is imported only when it is needed."""

GONE = {
    "archive": "type tar czf STUDY.tar.gz -C outputs STUDY",
    "choose": "type hpml-jobs collect STUDY min_efficiency=0.8",
    "completion": "type hpml-jobs --install-completion",
    "export": "read outputs/STUDY/report/cells.csv (docs/share.md)",
    "fetch": "a submission downloads a missing data set",
    "predict": "measure the sizes, e.g. hpml-jobs -m gpus=4,8",
    "record": "type hpml-jobs collect STUDY --all, or read record.json in outputs/STUDY/cells/CELL",
    "remove": "type rm -r outputs/STUDY",
    "report": "type hpml-jobs collect STUDY, which writes the page",
}
"""Commands of earlier versions, with what to do instead."""


def typer_program(names: Iterable[str] = COMMANDS) -> "typer.Typer":
    """Return a typer program with these commands."""
    import typer

    program = typer.Typer(
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    # keeps the command's name, even if there is only one
    program.callback()(lambda: None)
    for name in names:
        program.command(name, hidden=name == UNNAMED)(COMMANDS[name].function())
    return program
