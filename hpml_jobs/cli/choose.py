"""Command choose, and how a group of cells is shown."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.rule import Rule
from rich.text import Text
from typer import Argument

from hpml_jobs.cli.completion import StudiesAndKeys
from hpml_jobs.cli.console import console, print_json
from hpml_jobs.cli.options import (
    Json,
    Outputs,
    Reader,
    commands_here,
    find_study,
    history_of,
    number,
    parse_words,
    share,
    study_words,
    whole_number,
)
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import PROGRAM, with_command
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    from hpml_jobs.report.choose.rules import Wish
    from hpml_jobs.report.choose.table import GroupChoice
    from hpml_jobs.report.frame.table import Table
    from hpml_jobs.results.groups import ConditionGroup

CHOOSE_KEYS: Mapping[str, Reader] = {
    "min_efficiency": share,
    "epochs": whole_number,
    "gpu_hours_budget": number,
    "deadline_min": number,
}


def choice_words(keys: Collection[str]) -> Any:
    """Return the argument of the words of choose, which may have these keys."""
    return Argument(
        metavar="[STUDY] [KEY=VALUE]...",
        help=f"study, default: the most recently submitted; keys: {', '.join(keys)}",
        autocompletion=StudiesAndKeys(dict.fromkeys(keys, ())).complete,
    )


def choose(
    words: Annotated[list[str] | None, choice_words(CHOOSE_KEYS)] = None,
    outputs: Outputs = None,
    json: Json = False,
) -> None:
    """Say which of the measured cells to ask for, which is fastest and which is cheapest.

    It is the one with the most GPUs and an efficiency of min_efficiency=0.7 or more. With epochs=N
    and deadline_min= it is the cheapest in time, with gpu_hours_budget= the fastest within it.

    Example: hpml-jobs choose demo min_efficiency=0.6
    """
    from hpml_jobs.report.choose.rules import Wish

    name, values = parse_words("choose", words, CHOOSE_KEYS)
    wish = Wish(**values)
    study, choices = read_choices(name, outputs, wish)
    if json:
        groups = [choice.document for choice in choices]
        print_json({"study": study.name, "wish": wish, "groups": groups})
        return
    out = console()
    for choice in choices:
        show_choice(out, choice, several=len(choices) > 1)


def read_choices(
    name: str | None, outputs: Path | None, wish: "Wish"
) -> tuple[Study, list["GroupChoice"]]:
    """Return the study of that name, and the choice of each of its groups with a number.

    Raises:
        HpmlError: no cell has a number.
    """
    from hpml_jobs.report.choose.table import choices
    from hpml_jobs.study.snapshot import read_study

    study = find_study(name, outputs, CHOOSE_KEYS)
    snapshots = read_study(study, history_of(study))
    commands = commands_here(study, study.commands())
    words, cluster = study_words(study), study.last_cluster()
    groups = choices(snapshots, wish, cluster, commands, study=words)
    if not groups:
        raise no_number(study)
    return study, groups


def show_choice(out: Console, choice: "GroupChoice", *, several: bool) -> None:
    """Print the choice of a group, and the commands of cells beyond it."""
    from hpml_jobs.report.files.screen import show_text

    show_group(out, choice.group, choice.table, several=several)
    for command in choice.next_cells:
        show_text(command, out)


def no_number(study: Study) -> HpmlError:
    """Return the error of a study whose cells have no numbers."""
    return HpmlError(
        with_command(
            f"no cell of study {study.name} has a number; to see why",
            f"{PROGRAM} status {study_words(study)}",
        )
    )


def show_group(
    out: Console, group: "ConditionGroup", table: "Table", *, several: bool
) -> None:
    """Print the setting of a group of cells, the answer and the table."""
    from hpml_jobs.report.files.screen import show_table
    from hpml_jobs.report.frame.captions import setting

    if several:
        out.print(Rule(style="dim"))
    out.print(Text(setting(group), style="dim"))
    show_table(table, out)
