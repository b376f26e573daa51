"""Command choose."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from hpml_jobs.cli.completion import studies
from hpml_jobs.cli.console import console, print_json
from hpml_jobs.cli.options import Json, Outputs, cluster_of, find_study, history_of
from hpml_jobs.core.text import nearest
from hpml_jobs.errors import HpmlError, UsageError

if TYPE_CHECKING:
    from hpml_jobs.report.choice import GroupChoice
    from hpml_jobs.report.merge.choice import Wish

KEYS = ("min_efficiency", "epochs", "gpu_hours_budget", "deadline_min")


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
    json: Json = False,
) -> None:
    """Say which of the measured cells to ask for, which is fastest and which is cheapest.

    It is the one with the most GPUs and an efficiency of min_efficiency=0.7 or more. With epochs=N
    and deadline_min= it is the cheapest in time, with gpu_hours_budget= the fastest within it.

    Example: hpml-jobs choose digits-local min_efficiency=0.6
    """
    from hpml_jobs.report.choice import choices
    from hpml_jobs.study.snapshot import read_study

    name, wish = _parse(words or [])
    study = find_study(name, outputs)
    snapshots = read_study(study, history_of(study))
    made = choices(snapshots, wish, cluster_of(study), study.commands())
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


def _parse(words: list[str]) -> "tuple[str | None, Wish]":
    """Return the study's name and the wish.

    Raises:
        UsageError: an unknown key, a value out of its range, two names.
    """
    from hpml_jobs.report.merge.choice import Wish

    values: dict[str, Any] = {}
    names = []
    for word in words:
        key, is_pair, text = word.partition("=")
        if not is_pair or key in ("study", "outputs"):
            names.append(word)
        elif key in KEYS:
            values[key] = _number(key, text)
        else:
            near = nearest(key, KEYS)
            hint = f"; did you mean {near}=?" if near else ""
            raise UsageError(f"{word}: choose has the keys {', '.join(KEYS)}{hint}")
    if len(names) > 1:
        raise UsageError(f"{' '.join(names)}: choose is for one study")
    return (names[0] if names else None), Wish(**values)


def _number(key: str, text: str) -> float | int:
    try:
        return int(text) if key == "epochs" else float(text)
    except ValueError:
        kind = "a whole number" if key == "epochs" else "a number"
        raise UsageError(f"{key}={text}: must be {kind}") from None


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
