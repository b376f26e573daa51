"""Command reference: store the numbers of a study, to compare later studies with it."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from hpml_jobs.cli.completion import studies
from hpml_jobs.cli.console import console, print_json
from hpml_jobs.cli.options import Json, Outputs, find_study, outputs_of
from hpml_jobs.core.text import counted
from hpml_jobs.errors import HpmlError, UsageError

if TYPE_CHECKING:
    from hpml_jobs.report.compare.reference import Reference


class Action(StrEnum):
    """What is done with references."""

    SAVE = "save"
    LIST = "list"
    SHOW = "show"
    DELETE = "delete"


def reference(
    action: Annotated[Action, typer.Argument(help="what to do")],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="name of the reference, or the path of its file"),
    ] = None,
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="STUDY",
            help="study to save; default: the most recently submitted",
            autocompletion=studies,
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="save over a reference of the same name")
    ] = False,
    outputs: Outputs = None,
    json: Json = False,
) -> None:
    """List, show and delete what compare --save stored; reference save does the same as it.

    A name is stored in references/ next to the studies, a path (ci/reference.json) as it is: that
    can be committed. The file has times, conditions and checks, no paths and no names of hosts.

    Example: hpml-jobs reference save v1 digits-local
    """
    folder = outputs_of(outputs)
    if study is not None and action is not Action.SAVE:
        raise UsageError(f"{study}: reference {action.value} has no study")
    if action is Action.LIST:
        if name is not None:
            raise UsageError(f"{name}: reference list has no name; use reference show {name}")
        _list(folder, json=json)
        return
    if name is None:
        raise UsageError(f"reference {action.value} needs a NAME")
    match action:
        case Action.SAVE:
            save_reference(name, study, outputs, replace=replace, json=json)
        case Action.SHOW:
            _show(name, folder, json=json)
        case _:
            _delete(name, folder)


def save_reference(
    name: str, study: str | None, outputs: Path | None, *, replace: bool, json: bool
) -> None:
    """Store the numbers of a study, by default of the most recently submitted one; `json` prints.

    Raises:
        UsageError: the name is that of a study, or no name.
        HpmlError: the file exists, or cannot be written.
    """
    from hpml_jobs.cli.sides import of_study, reference_path
    from hpml_jobs.report.compare.reference import write_reference

    folder = outputs_of(outputs)
    path = reference_path(name, folder)
    if (folder / name / "cells").is_dir():
        raise UsageError(f"{name} is a study: give the reference another name")
    if path.exists() and not replace:
        raise HpmlError(f"reference {path} exists: --replace saves over it")
    numbers = of_study(find_study(study, outputs)).numbers()
    write_reference(numbers, path)
    if json:
        print_json(numbers)
    else:
        print(f"saved: {_cells(numbers)} of study {numbers.study} in {path}")


def _cells(numbers: "Reference") -> str:
    cells = [cell for group in numbers.groups for cell in group.cells if cell.runs]
    return f"{counted(len(cells), 'cell')}, {counted(sum(len(c.runs) for c in cells), 'run')}"


def _list(folder: Path, *, json: bool) -> None:
    from hpml_jobs.cli.sides import reference_names, reference_path
    from hpml_jobs.report.compare.reference import read_reference

    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("reference", "study", "measured", "cells"):
        table.add_column(head)
    rows = []
    for name in reference_names(folder):
        try:
            numbers = read_reference(reference_path(name, folder))
        except HpmlError as fault:
            rows.append({"reference": name, "fault": str(fault)})
            table.add_row(name, Text(str(fault), style="red"), "", "")
            continue
        row = (name, numbers.study, numbers.measured[:10], _cells(numbers))
        rows.append(dict(zip(("reference", "study", "measured", "cells"), row, strict=True)))
        table.add_row(*row)
    if json:
        print_json({"references": rows})
    elif rows:
        console().print(table)
    else:
        raise HpmlError(f"no reference in {folder}: hpml-jobs compare STUDY --save NAME stores one")


def _show(name: str, folder: Path, *, json: bool) -> None:
    from hpml_jobs.cli.sides import reference_path
    from hpml_jobs.report.compare.reference import read_reference
    from hpml_jobs.report.frame.captions import cell_label
    from hpml_jobs.report.frame.numbers import seconds

    path = reference_path(name, folder)
    numbers = read_reference(path)
    if json:
        print_json(numbers)
        return
    day = f", measured {numbers.measured[:10]}" if numbers.measured else ""
    print(f"{path}: {_cells(numbers)} of study {numbers.study}{day}")
    for group in numbers.groups:
        print(group.setting)
        for cell in group.cells:
            times = ", ".join(map(seconds, cell.epochs_s)) or cell.outcome.value
            print(f"  {cell_label(cell.place, group.device)}: {times}{' s' if cell.runs else ''}")


def _delete(name: str, folder: Path) -> None:
    from hpml_jobs.cli.sides import is_path, reference_path

    if is_path(name):
        raise UsageError(f"{name}: reference delete takes a name; remove a file yourself")
    path = reference_path(name, folder)
    try:
        path.unlink()
    except OSError as fault:
        raise HpmlError(f"reference {path} cannot be deleted: {fault.strerror}") from fault
    print(f"deleted: {path}")
