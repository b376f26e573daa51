"""A study as others may read it: without the secrets in the arguments of its scripts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cell import Cell
from hpml_jobs.report.frame.cells import CellResult, cell_results
from hpml_jobs.study.redaction import PublicArguments, arguments_in
from hpml_jobs.study.snapshot import CellState, FolderSnapshot


class PublicStudy(NamedTuple):
    """The cells of a study, and the commands that submitted them."""

    results: list[CellResult]
    commands: tuple[str, ...]


def public_study(
    snapshots: Iterable[FolderSnapshot],
    states: Mapping[str, CellState],
    commands: Sequence[str] = (),
) -> PublicStudy:
    """Return what every table, page, file and printed command of a study is made from."""
    results = cell_results(snapshots, states)
    scripts = (result.cell.script for result in results if result.cell)
    arguments = [script.args for script in scripts if script]
    for command in commands:
        arguments += arguments_in(command)
    public = PublicArguments({*arguments})
    if not public.secrets:
        return PublicStudy(results, tuple(commands))
    return PublicStudy(
        [_public_result(result, public) for result in results],
        tuple(public.command(command) for command in commands),
    )


def _public_result(result: CellResult, public: PublicArguments) -> CellResult:
    record = result.record
    if record is not None:
        record = msgspec.structs.replace(record, cell=_public_cell(record.cell, public))
    return msgspec.structs.replace(
        result,
        cell=result.cell and _public_cell(result.cell, public),
        record=record,
        reason=public.text(result.reason),
    )


def _public_cell(cell: Cell, public: PublicArguments) -> Cell:
    if cell.script is None:
        return cell
    script = msgspec.structs.replace(cell.script, args=public.text(cell.script.args))
    return msgspec.structs.replace(cell, script=script)
