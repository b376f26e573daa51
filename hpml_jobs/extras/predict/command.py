"""Command predict."""

from typing import TYPE_CHECKING, Annotated

import typer

from hpml_jobs.cli.choose import no_number, show_group
from hpml_jobs.cli.completion import StudiesAndKeys
from hpml_jobs.cli.console import console, print_json
from hpml_jobs.cli.options import (
    Json,
    Outputs,
    choice_of,
    commands_here,
    find_study,
    history_of,
    parse_words,
    whole_number,
)
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.strategies import Strategy

if TYPE_CHECKING:
    from hpml_jobs.extras.predict.question import Question


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
            autocompletion=StudiesAndKeys(dict.fromkeys(PREDICT_KEYS, ())).complete,
        ),
    ] = None,
    outputs: Outputs = None,
    json: Json = False,
) -> None:
    """Predict iterations that were not measured: more GPUs, more nodes.

    Without keys, the next two doublings of the largest size at the measured batches. Beside each
    prediction are a band, its error on measured cells that were left out, and that of no change per
    GPU. What the measured cells cannot know is refused with the command of the cell to measure.
    See docs/predict.md.

    Example: hpml-jobs predict demo gpus=4,8 cluster.gpus_per_node=8
    """
    from hpml_jobs.extras.predict.table import forecasts
    from hpml_jobs.study.snapshot import read_study

    name, question = _question(words)
    study = find_study(name, outputs)
    snapshots = read_study(study, history_of(study))
    commands = commands_here(study, study.commands())
    of_groups = forecasts(snapshots, question, study.last_cluster(), commands)
    if not of_groups:
        raise no_number(study)
    if json:
        print_json(
            {
                "study": study.name,
                "groups": [of_group.document for of_group in of_groups],
            }
        )
    else:
        out = console()
        for of_group in of_groups:
            show_group(out, of_group.group, of_group.table, several=len(of_groups) > 1)
    if not any(of_group.forecast.predictions for of_group in of_groups):
        raise typer.Exit(1)


def _question(words: list[str] | None) -> "tuple[str | None, Question]":
    """Return the study's name and the question.

    Raises:
        UsageError: the words are not `[STUDY] [KEY=VALUE]...`, or no cell can be like this.
    """
    from hpml_jobs.extras.predict.question import Question

    for word in words or ():
        if reason := GONE.get(word.partition("=")[0]):
            raise UsageError(f"{word}: {reason.format(word=word)}")
    study, values = parse_words("predict", words, PREDICT_KEYS)
    fields = {key.removeprefix("cluster."): value for key, value in values.items()}
    return study, Question(**fields)
