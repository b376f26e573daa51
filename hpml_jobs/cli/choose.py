"""Command choose."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from hpml_jobs.cli.completion import studies
from hpml_jobs.cli.console import console, print_json
from hpml_jobs.cli.options import (
    Json,
    Outputs,
    cluster_of,
    find_study,
    history_of,
    number,
    parse_words,
    share,
    whole_number,
)
from hpml_jobs.cli.predict import predict
from hpml_jobs.errors import HpmlError

if TYPE_CHECKING:
    from hpml_jobs.report.choose.table import GroupChoice

KEYS = {
    "min_efficiency": share,
    "epochs": whole_number,
    "gpu_hours_budget": number,
    "deadline_min": number,
}


def choose(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STUDY] [KEY=VALUE]...",
            help=f"study, default: the most recently submitted; keys: {', '.join(KEYS)}",
            autocompletion=studies,
        ),
    ] = None,
    outputs: Outputs = None,
    predicted: Annotated[
        bool,
        typer.Option("--predicted", hidden=True, help="what predict does; until version 1.0"),
    ] = False,
    json: Json = False,
) -> None:
    """Say which of the measured cells to ask for, which is fastest and which is cheapest.

    It is the one with the most GPUs and an efficiency of min_efficiency=0.7 or more. With epochs=N
    and deadline_min= it is the cheapest in time, with gpu_hours_budget= the fastest within it.
    For sizes that were not measured use predict: it shows what they cost, too.

    Example: hpml-jobs choose digits-local min_efficiency=0.6
    """
    from hpml_jobs.report.choose.rules import Wish
    from hpml_jobs.report.choose.table import choices
    from hpml_jobs.study.snapshot import read_study

    if predicted:
        predict(words, outputs, json=json)
        return
    parsed = parse_words("choose", words, KEYS)
    wish = Wish(**parsed.values)
    study = find_study(parsed.study, outputs)
    snapshots = read_study(study, history_of(study))
    made = choices(snapshots, wish, cluster_of(study), study.commands(), study=study.name)
    if not made:
        raise HpmlError(
            f"no cell of study {study.name} has a number; hpml-jobs status {study.name} shows why"
        )
    if json:
        print_json({"study": study.name, "wish": wish, "groups": [m.document for m in made]})
        return
    out = console()
    for choice in made:
        _show(out, choice, several=len(made) > 1)


def _show(out: Console, made: "GroupChoice", *, several: bool) -> None:
    """Print the answer, then the table of all cells, the steps, and the next cells."""
    from hpml_jobs.report.files.screen import show_table
    from hpml_jobs.report.frame.captions import setting

    if several:
        out.print(Rule(style="dim"))
    out.print(Text(setting(made.group), style="dim"))
    show_table(made.table, out)
    for line in made.next_cells:
        out.print(Text(line))
