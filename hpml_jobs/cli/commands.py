"""The names of the commands, and the typer program made of them."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

COMPLETION_VARIABLE = "_HPML_JOBS_COMPLETE"
"""Set by the shell's completion script: typer answers the shell."""

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
    "report": "type hpml-jobs collect STUDY, which writes the page",
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
        program.command(name, hidden=name == UNNAMED)(functions[name])
    return program
