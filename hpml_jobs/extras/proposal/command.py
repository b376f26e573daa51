"""Command choose with a paragraph for a proposal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from hpml_jobs.cli.choose import CHOOSE_KEYS, choice_words, read_choices, show_choice
from hpml_jobs.cli.console import console, print_json
from hpml_jobs.cli.options import Json, Outputs, parse_words, whole_number
from hpml_jobs.core.errors import HpmlError, UsageError

if TYPE_CHECKING:
    from hpml_jobs.report.choose.table import GroupChoice

KEYS = {
    "min_efficiency": CHOOSE_KEYS["min_efficiency"],
    "epochs": CHOOSE_KEYS["epochs"],
    "runs": whole_number,
    **CHOOSE_KEYS,
}
"""The keys of choose, with `runs` beside `epochs`."""


def choose(
    words: Annotated[list[str] | None, choice_words(KEYS)] = None,
    outputs: Outputs = None,
    preliminary: Annotated[
        bool,
        typer.Option("--preliminary", help="write the proposal from a single run, too"),
    ] = False,
    json: Json = False,
) -> None:
    """Say which of the measured cells to ask for, which is fastest and which is cheapest.

    It is the one with the most GPUs and an efficiency of min_efficiency=0.7 or more. With epochs=N
    and deadline_min= it is the cheapest in time, with gpu_hours_budget= the fastest within it.
    With epochs=N runs=N a paragraph for a proposal follows, which requests their GPU-hours.

    Example: hpml-jobs choose demo min_efficiency=0.6
    """
    from hpml_jobs.report.choose.rules import Wish

    name, values = parse_words("choose", words, KEYS)
    wish = Wish(**values)
    if preliminary and wish.runs is None:
        raise UsageError("--preliminary is of a proposal: add epochs=90 runs=10")
    study, choices = read_choices(name, outputs, wish)
    answers = [
        (choice, _proposal(choice, is_preliminary=preliminary)) for choice in choices
    ]
    if json:
        groups = [
            choice.document | {"proposal": p.paragraph or None} for choice, p in answers
        ]
        print_json({"study": study.name, "wish": wish, "groups": groups})
    else:
        _show(answers)
    refusals = dict.fromkeys(p.refusal for _, p in answers if p.refusal)
    if refusals:
        raise HpmlError("; ".join(refusals))


class Proposal(NamedTuple):
    """A paragraph, or why it was refused; both are empty if none was asked for."""

    paragraph: str = ""
    refusal: str = ""


def _show(answers: "Sequence[tuple[GroupChoice, Proposal]]") -> None:
    """Print the choice of each group, and the paragraph that belongs to it."""
    from hpml_jobs.report.files.screen import show_text

    out = console()
    for choice, proposal in answers:
        show_choice(out, choice, several=len(answers) > 1)
        if proposal.paragraph:
            show_text(proposal.paragraph, out)


def _proposal(choice: "GroupChoice", *, is_preliminary: bool) -> Proposal:
    from hpml_jobs.extras.proposal.paragraph import paragraph, refusal

    if choice.choice.wish.runs is None:
        return Proposal()
    reason = refusal(choice.choice, is_preliminary=is_preliminary)
    if reason:
        return Proposal(refusal=reason)
    return Proposal(paragraph(choice.group, choice.choice))
