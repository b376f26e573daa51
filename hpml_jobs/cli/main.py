"""The command line's words; what is not a command is a Hydra override and is submitted."""

import difflib
import io
import itertools
import os
import sys
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING

from hpml_jobs import __version__
from hpml_jobs.core.paths import conf_folder
from hpml_jobs.errors import HpmlError, UsageError

if TYPE_CHECKING:
    import typer

INTERRUPTED = 130  # as shells have it

COMPLETING = "_HPML_JOBS_COMPLETE"  # set by the script of `hpml-jobs completion`

HELP = ("-h", "--help", "help")

COMMANDS = (
    "submit",
    "plan",
    "run",
    "fetch",
    "import",
    "status",
    "watch",
    "logs",
    "record",
    "cancel",
    "resubmit",
    "collect",
    "doctor",
    "completion",
)

HYDRA_PAGES = ("--cfg", "-c", "--info", "-i", "--shell-completion", "-sc")


def run(words: list[str]) -> int:
    """Run one command line; returns its exit code. An HpmlError is one line on standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a console that cannot show │ shows ?
    try:
        return _dispatch(words)
    except HpmlError as fault:
        print(f"hpml-jobs: {' '.join(str(fault).split())}", file=sys.stderr)
        return fault.exit_code
    except KeyboardInterrupt:
        print("hpml-jobs: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1


def _dispatch(words: list[str]) -> int:
    if COMPLETING in os.environ:
        from hpml_jobs.cli.completion import answer  # noqa: PLC0415

        return answer(commands(), COMMANDS)
    plain = not words or words[0] not in COMMANDS
    if not words or (plain and any(word in HELP for word in words)):
        from hpml_jobs.cli.help import page  # noqa: PLC0415  (each command loads what it needs)

        print(page(__version__, [conf_folder(), *_own_configs(words)]), end="")
    elif words[0] in ("-V", "--version"):
        print(f"hpml_jobs {__version__}")
    elif any(word in HYDRA_PAGES for word in words):
        from hpml_jobs.plan.hydra_pages import show  # noqa: PLC0415

        sweeping = ("-m", "--multirun")
        sys.argv[1:] = [w for w in words[not plain :] if w not in sweeping]
        show()
    elif plain:
        near = difflib.get_close_matches(words[0], COMMANDS, n=1) if "=" not in words[0] else []
        if near:
            raise UsageError(f"{words[0]} is not a command; did you mean {near[0]}?")
        return _command(["submit", *words])
    else:
        return _command(words)
    return 0


def _own_configs(words: list[str]) -> list[Path]:
    """The folder after --config-dir, if the words name one."""
    pairs = itertools.pairwise(words)
    return [Path(folder) for word, folder in pairs if word == "--config-dir"]


def _command(words: list[str]) -> int:
    """One of the commands; what is wrong with its options is one line too."""
    from typer.exceptions import TyperException  # noqa: PLC0415

    try:
        code: int = commands()(words, prog_name="hpml-jobs", standalone_mode=False) or 0
    except TyperException as fault:
        said = fault.format_message() if hasattr(fault, "format_message") else str(fault)
        raise UsageError(f"{said} (hpml-jobs {words[0]} --help)") from fault
    if code == INTERRUPTED:  # what typer makes of Ctrl-C, without a word
        raise KeyboardInterrupt
    return code


def commands() -> "typer.Typer":
    """All commands; `submit` is the one that needs no name."""
    import typer  # noqa: PLC0415  (--help does without)

    from hpml_jobs.cli import completion as completing  # noqa: PLC0415
    from hpml_jobs.cli import doctor as doctoring  # noqa: PLC0415
    from hpml_jobs.cli import import_csv as importing  # noqa: PLC0415
    from hpml_jobs.cli import jobs as acting  # noqa: PLC0415
    from hpml_jobs.cli import record as reading  # noqa: PLC0415
    from hpml_jobs.cli import status as seeing  # noqa: PLC0415
    from hpml_jobs.cli import submit as sending  # noqa: PLC0415

    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
    for name in COMMANDS:
        function = f"{name}_" if iskeyword(name) else name
        rooms = (sending, acting, seeing, reading, importing, doctoring, completing)
        where = next(room for room in rooms if hasattr(room, function))
        app.command(name, hidden=name == "submit")(getattr(where, function))
    return app
