"""Entry of the command line: run a command; a line that names none submits a study."""

import errno
import gc
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hpml_jobs.cli.terminal import discard, printed_plainly, remember
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.paths import conf_folder
from hpml_jobs.core.text import PROGRAM, VERSION, in_one_line, nearest

if TYPE_CHECKING:
    import typer

UNNAMED = "submit"
"""The command of a line that names none."""

COMMANDS = (
    "init",
    "doctor",
    UNNAMED,
    "plan",
    "run",
    "resubmit",
    "cancel",
    "list",
    "status",
    "logs",
    "collect",
    "import",
    "compare",
)

GONE = {
    "archive": "type tar czf STUDY.tar.gz -C outputs STUDY",
    "choose": "type hpml-jobs collect STUDY min_efficiency=0.8",
    "completion": "type hpml-jobs --install-completion",
    "export": "read outputs/STUDY/report/cells.csv (docs/results.md)",
    "fetch": "a submission downloads a missing data set",
    "predict": "measure the sizes, e.g. hpml-jobs -m gpus=4,8",
    "record": "type hpml-jobs collect STUDY --all, or read record.json in outputs/STUDY/cells/CELL",
    "remove": "type rm -r outputs/STUDY",
    "reference": "type hpml-jobs compare STUDY --save FILE",
    "report": "type hpml-jobs collect STUDY, which writes the page",
    "unpack": "type tar xzf STUDY.tar.gz -C outputs",
    "watch": "type hpml-jobs status STUDY --watch",
}
"""Commands of earlier versions, with what to do instead."""


def functions_of_commands() -> Mapping[str, Callable[..., None]]:
    """Return the function of each command; importing them takes a tenth of a second."""
    from hpml_jobs.cli.collect import collect
    from hpml_jobs.cli.compare import compare, import_
    from hpml_jobs.cli.doctor import doctor, init
    from hpml_jobs.cli.jobs import cancel, resubmit
    from hpml_jobs.cli.run import run
    from hpml_jobs.cli.status import list_, logs, status
    from hpml_jobs.cli.submit import plan, submit

    return {
        "init": init,
        "doctor": doctor,
        UNNAMED: submit,
        "plan": plan,
        "run": run,
        "resubmit": resubmit,
        "cancel": cancel,
        "list": list_,
        "status": status,
        "logs": logs,
        "collect": collect,
        "import": import_,
        "compare": compare,
    }


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
    functions = functions_of_commands()
    for name in names:
        program.command(name)(functions[name])
    return program


INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""


def run(words: list[str]) -> int:
    """Prepare the streams, run one command line and return its exit code."""
    remember(words)
    # records have no cycles, and there may be thousands
    gc.set_threshold(1_000_000)
    with printed_plainly():
        return _run(words)


def _run(words: list[str]) -> int:
    """Run the command and return the exit code; an HpmlError becomes one line on stderr."""
    try:
        code = _dispatch(words or ["--help"])
        if sys.stdout:  # else it was closed
            sys.stdout.flush()
        return code
    except HpmlError as error:
        print(f"{PROGRAM}: {in_one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has left
        discard(sys.stdout)
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        discard(sys.stdout)
        print(
            f"{PROGRAM}: {error.filename or 'the output'}: {error.strerror}",
            file=sys.stderr,
        )
        return 1
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1


def _dispatch(words: list[str]) -> int:
    try:
        Path.cwd()
    except FileNotFoundError as fault:
        raise HpmlError("the current folder was removed: cd to another one") from fault
    first = words[0]
    names_command = first in COMMANDS
    # typer answers the completion script of the shell
    is_of_shell = "_HPML_JOBS_COMPLETE" in os.environ
    if is_of_shell or first in ("--install-completion", "--show-completion"):
        return typer_program()(words[:1], prog_name=PROGRAM) or 0
    if not names_command and not {"-h", "--help", "help"}.isdisjoint(words):
        return _help(words)
    if first in ("-V", "--version", "version"):
        print(f"hpml_jobs {VERSION}")
        return 0
    if not names_command:
        _refuse_no_command(first)
        words = [UNNAMED, *words]
    return _run_command(words)


def _refuse_no_command(word: str) -> None:
    """Raise UsageError if the first word is neither an option nor a key with its value."""
    if word in GONE:
        raise UsageError(f"{word} is not a command any more: {GONE[word]}")
    if "=" in word or word.startswith(("-", "~", "+")):
        return
    near = nearest(word, COMMANDS, cutoff=0.65)
    hint = f"did you mean {near}?" if near else f"see {PROGRAM} --help (or KEY=VALUE)"
    raise UsageError(f"{word} is not a command: {hint}")


def _help(words: list[str]) -> int:
    """Print the first page, or that of a topic (`help keys`), a command or another word."""
    from hpml_jobs.cli.help import PAGE, TOPICS, WHOLE_PAGE, entry, explanations, topic

    is_whole = "--all" in words
    words = [word for word in words if word != "--all"]
    named = " ".join(words[1:]) if words[0] == "help" else ""
    if named in TOPICS:
        print(topic(named, conf_folder(), is_whole=is_whole), end="")
    elif named in COMMANDS:
        print(explanations().get(named, ""), end="")
        return _run_command([named, "--help"])
    elif named:
        print(entry(named, conf_folder()), end="")
    else:
        page = WHOLE_PAGE if is_whole else PAGE
        print(page.format(version=VERSION), end="")
    return 0


def _run_command(words: list[str]) -> int:
    """Run one of the commands; an error in its options becomes a UsageError."""
    from typer.exceptions import TyperException

    try:
        program = typer_program([words[0]])
        code: int = program(words, prog_name=PROGRAM, standalone_mode=False) or 0
    except TyperException as error:
        text = error.format_message().removesuffix(".")
        raise UsageError(
            f"{text} ({PROGRAM} {words[0]} --help; a key is typed KEY=VALUE)"
        ) from error
    if code == INTERRUPTED:  # typer returns this after Ctrl-C
        raise KeyboardInterrupt
    return code
