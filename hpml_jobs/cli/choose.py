"""Commands choose and predict."""

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
    choice_of,
    commands_here,
    find_study,
    history_of,
    number,
    parse_words,
    share,
    study_words,
    whole_number,
)
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.text import PROGRAM, with_command
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    from hpml_jobs.predict.question import Question
    from hpml_jobs.report.choose.table import GroupChoice
    from hpml_jobs.report.predict.table import GroupForecast

CHOOSE_KEYS = {
    "min_efficiency": share,
    "epochs": whole_number,
    "runs": whole_number,
    "gpu_hours_budget": number,
    "deadline_min": number,
}


def choose(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STUDY] [KEY=VALUE]...",
            help=f"study, default: the most recently submitted; keys: {', '.join(CHOOSE_KEYS)}",
            autocompletion=studies,
        ),
    ] = None,
    outputs: Outputs = None,
    preliminary: Annotated[
        bool, typer.Option("--preliminary", help="write the proposal from a single run, too")
    ] = False,
    json: Json = False,
) -> None:
    """Say which of the measured cells to ask for, which is fastest and which is cheapest.

    It is the one with the most GPUs and an efficiency of min_efficiency=0.7 or more. With epochs=N
    and deadline_min= it is the cheapest in time, with gpu_hours_budget= the fastest within it.
    With epochs=N runs=N a paragraph for a proposal follows, which requests their GPU-hours.
    For sizes that were not measured use predict: it shows what they cost, too.

    Example: hpml-jobs choose digits-local min_efficiency=0.6
    """
    from hpml_jobs.report.choose.proposal import proposal, refusal
    from hpml_jobs.report.choose.rules import Wish
    from hpml_jobs.report.choose.table import choices
    from hpml_jobs.study.snapshot import read_study

    name, values = parse_words("choose", words, CHOOSE_KEYS)
    wish = Wish(**values)
    if preliminary and wish.runs is None:
        raise UsageError("--preliminary is of a proposal: add epochs=N runs=N")
    study = find_study(name, outputs)
    snapshots = read_study(study, history_of(study))
    cluster, commands = study.last_cluster(), commands_here(study, study.commands_to_repeat())
    resubmitted = None if study.is_unpacked else study_words(study)
    made = choices(snapshots, wish, cluster, commands, study=resubmitted)
    if not made:
        raise _no_number(study)
    reasons = [refusal(m.choice, is_preliminary=preliminary) if wish.runs else "" for m in made]
    proposals = [
        proposal(m.group, m.choice) if wish.runs and not reason else None
        for m, reason in zip(made, reasons, strict=True)
    ]
    from hpml_jobs.report.files.screen import show_text

    if json:
        groups = [m.document | {"proposal": p} for m, p in zip(made, proposals, strict=True)]
        print_json({"study": study.name, "wish": wish, "groups": groups})
    else:
        out = console()
        for choice, paragraph in zip(made, proposals, strict=True):
            _show(out, choice, several=len(made) > 1)
            for text in (*choice.next_cells, *filter(None, [paragraph])):
                show_text(text, out)
    if refusals := dict.fromkeys(filter(None, reasons)):
        raise HpmlError("; ".join(refusals))


def _no_number(study: Study) -> HpmlError:
    return HpmlError(
        with_command(
            f"no cell of study {study.name} has a number; to see why",
            f"{PROGRAM} status {study_words(study)}",
        )
    )


def _show(out: Console, made: "GroupChoice | GroupForecast", *, several: bool) -> None:
    """Print the setting of a group of cells, the answer and the table."""
    from hpml_jobs.report.files.screen import show_table
    from hpml_jobs.report.frame.captions import setting

    if several:
        out.print(Rule(style="dim"))
    out.print(Text(setting(made.group), style="dim"))
    show_table(made.table, out)


def whole_numbers(text: str) -> tuple[int, ...]:
    """Read whole numbers, separated by commas.

    Raises:
        UsageError: they are none.
    """
    return tuple(dict.fromkeys(whole_number(part) for part in text.split(",")))


def strategies(text: str) -> tuple[Strategy, ...]:
    """Read strategies, separated by commas.

    Raises:
        UsageError: one of them is none.
    """
    return tuple(dict.fromkeys(map(choice_of(Strategy), text.split(","))))


PREDICT_KEYS = {
    "gpus": whole_numbers,
    "batch": whole_numbers,
    "strategy": strategies,
    "nodes": whole_number,
    "cluster.gpus_per_node": whole_number,
}

OF_NETWORKS = (
    "this key is gone, because a network is measured, not given: measure a cell on two nodes "
    "(nodes=2); predict without this key prints the command of the study's cell"
)

GONE = {
    "link_gb_per_s": OF_NETWORKS,
    "links_per_node": OF_NETWORKS,
    "other_network": OF_NETWORKS,
    "sweep": OF_NETWORKS,
    "accumulate": "this key is gone, because all measured accumulations are predicted: to measure "
    "one, submit the study's command with {word}",
}
"""Keys of earlier versions, and what to do instead."""


def predict(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STUDY] [KEY=VALUE]...",
            help=f"study, default: the most recently submitted; keys: {', '.join(PREDICT_KEYS)}",
            autocompletion=studies,
        ),
    ] = None,
    outputs: Outputs = None,
    json: Json = False,
) -> None:
    """Predict iterations that were not measured: more GPUs, more nodes.

    Without keys, the next two doublings of the largest size at the measured batches. Beside each
    prediction are a band, its error on measured cells that were left out, and that of no change per
    GPU. What the measured cells cannot know is refused with the command of the cell to measure.
    See docs/choose_predict.md.

    Example: hpml-jobs predict digits-local gpus=4,8 cluster.gpus_per_node=8
    """
    from hpml_jobs.report.predict.table import forecasts
    from hpml_jobs.study.snapshot import read_study

    name, question = _question(words)
    study = find_study(name, outputs)
    snapshots = read_study(study, history_of(study))
    commands = commands_here(study, study.commands_to_repeat())
    made = forecasts(snapshots, question, study.last_cluster(), commands)
    if not made:
        raise _no_number(study)
    if json:
        print_json({"study": study.name, "groups": [forecast.document for forecast in made]})
    else:
        out = console()
        for forecast in made:
            _show(out, forecast, several=len(made) > 1)
    if not any(forecast.forecast.predictions for forecast in made):
        raise typer.Exit(1)


def _question(words: list[str] | None) -> "tuple[str | None, Question]":
    """Return the study's name and the question.

    Raises:
        UsageError: the words are not `[STUDY] [KEY=VALUE]...`, or no cell can be like this.
    """
    from hpml_jobs.predict.question import Question

    for word in words or ():
        if reason := GONE.get(word.partition("=")[0]):
            raise UsageError(f"{word}: {reason.format(word=word)}")
    study, values = parse_words("predict", words, PREDICT_KEYS)
    return study, Question(**{k.removeprefix("cluster."): value for k, value in values.items()})
