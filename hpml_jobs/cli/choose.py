"""Command choose, and how a group of cells is shown."""

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
from hpml_jobs.core.text import PROGRAM, with_command
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    from hpml_jobs.report.frame.table import Table
    from hpml_jobs.results.groups import ConditionGroup

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
    of_groups = choices(snapshots, wish, cluster, commands, study=resubmitted)
    if not of_groups:
        raise no_number(study)
    reasons: list[str] = []
    proposals: list[str | None] = []
    for of_group in of_groups:
        paragraph = None
        if wish.runs:
            reasons.append(refusal(of_group.choice, is_preliminary=preliminary))
            if not reasons[-1]:
                paragraph = proposal(of_group.group, of_group.choice)
        proposals.append(paragraph)
    from hpml_jobs.report.files.screen import show_text

    if json:
        groups = [
            of_group.document | {"proposal": paragraph}
            for of_group, paragraph in zip(of_groups, proposals, strict=True)
        ]
        print_json({"study": study.name, "wish": wish, "groups": groups})
    else:
        out = console()
        for of_group, paragraph in zip(of_groups, proposals, strict=True):
            show_group(out, of_group.group, of_group.table, several=len(of_groups) > 1)
            for text in (*of_group.next_cells, *filter(None, [paragraph])):
                show_text(text, out)
    if refusals := dict.fromkeys(filter(None, reasons)):
        raise HpmlError("; ".join(refusals))


def no_number(study: Study) -> HpmlError:
    """Return the error of a study whose cells have no numbers."""
    return HpmlError(
        with_command(
            f"no cell of study {study.name} has a number; to see why",
            f"{PROGRAM} status {study_words(study)}",
        )
    )


def show_group(out: Console, group: "ConditionGroup", table: "Table", *, several: bool) -> None:
    """Print the setting of a group of cells, the answer and the table."""
    from hpml_jobs.report.files.screen import show_table
    from hpml_jobs.report.frame.captions import setting

    if several:
        out.print(Rule(style="dim"))
    out.print(Text(setting(group), style="dim"))
    show_table(table, out)
