"""Command choose."""

from typing import TYPE_CHECKING, Annotated, NamedTuple

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
from hpml_jobs.cli.predict import KEYS as PREDICTED_KEYS
from hpml_jobs.cli.predict import question_of, sweep_of
from hpml_jobs.errors import HpmlError, UsageError

if TYPE_CHECKING:
    from hpml_jobs.report.choice import Asked, GroupChoice
    from hpml_jobs.report.merge.choice import Wish

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
        typer.Option(
            "--predicted",
            help="Show predicted cells too, in a table and an answer of their own; "
            f"with the keys of predict: {', '.join(PREDICTED_KEYS)}",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Say which of the measured cells to ask for, which is fastest and which is cheapest.

    It is the one with the most GPUs and an efficiency of min_efficiency=0.7 or more. With epochs=N
    and deadline_min= it is the cheapest in time, with gpu_hours_budget= the fastest within it.
    Predictions (docs/choose_predict.md) count only with --predicted, and never change this answer.

    Example: hpml-jobs choose digits-local min_efficiency=0.6
    """
    from hpml_jobs.report.choice import choices
    from hpml_jobs.study.snapshot import read_study

    name, wish, question = _parse(words, predicted=predicted)
    study = find_study(name, outputs)
    snapshots = read_study(study, history_of(study))
    cluster, commands = cluster_of(study), study.commands()
    made = choices(snapshots, wish, cluster, commands, question, study=study.name)
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


class Words(NamedTuple):
    """The study's name, the wish, and what to predict; None: nothing."""

    study: str | None
    wish: "Wish"
    asked: "Asked | None"


def _parse(words: list[str] | None, *, predicted: bool) -> Words:
    """Return what the words ask for.

    Raises:
        UsageError: the words are not `[STUDY] [KEY=VALUE]...`, a limit has no `epochs=`, or a key
            is of predictions, which were not requested.
    """
    from hpml_jobs.report.choice import Asked
    from hpml_jobs.report.merge.choice import Wish

    parsed = parse_words("choose", words, {**KEYS, **PREDICTED_KEYS})
    of_wish = {key: value for key, value in parsed.values.items() if key in KEYS}
    of_question = {key: value for key, value in parsed.values.items() if key not in KEYS}
    wish = Wish(**of_wish)
    if not predicted:
        for key in of_question:
            raise UsageError(
                f"{key}=: only predictions have sizes that were not measured: add --predicted"
            )
        return Words(parsed.study, wish, None)
    question = question_of(of_question)
    return Words(parsed.study, wish, Asked(question, sweep_of(question)))


def _show(out: Console, made: "GroupChoice", *, several: bool) -> None:
    """Print the answer, then the table of all cells, the steps, and the next cells."""
    from hpml_jobs.report.formats.screen import show_table
    from hpml_jobs.report.text.captions import setting

    if several:
        out.print(Rule(style="dim"))
    out.print(Text(setting(made.group), style="dim"))
    show_table(made.table, out)
    for line in made.next_cells:
        out.print(Text(line))
    if made.predicted:
        out.print()
        show_table(made.predicted.table, out)
