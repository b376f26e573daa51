"""The overview of a group of cells: what was measured, the answer, and what to trust."""

from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from hpml_jobs.core.check_result import Tier
from hpml_jobs.core.conditions import CPU_COUNT
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import PROGRAM, counted, listed, with_command
from hpml_jobs.report import warnings
from hpml_jobs.report.choose import words
from hpml_jobs.report.choose.cost import Candidate, Exclusion
from hpml_jobs.report.choose.rules import Choice
from hpml_jobs.report.choose.table import accuracies
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.captions import mark
from hpml_jobs.report.frame.numbers import span, three_digits, verb
from hpml_jobs.report.lab.tables import StrategyTables
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.report.scaling.sentence import gap_sentence
from hpml_jobs.results.checks.result import names
from hpml_jobs.results.rows import Row, by_key
from hpml_jobs.study.study import commands_of


class Overview(NamedTuple):
    """Sentences on a group, in the order of reading.

    `answer`: the cell to ask for, then what more GPUs bring and what the missing part is.
    `deciding`: the command of the runs that decide between two cells, or of those that were
    disturbed. `measured`: the workload and the hardware, then the cells. `next_cells`: cells worth
    a run, with their commands. `trust`: which tables can be used, then a line per cause of wrong or
    doubtful numbers, the most serious first. `notes`: a line per cause of limited ones.
    """

    answer: tuple[str, ...]
    deciding: tuple[str, ...]
    measured: tuple[str, str]
    next_cells: tuple[str, ...]
    trust: tuple[str, ...]
    notes: tuple[str, ...]


def overview(report: Report, group: ReportGroup) -> Overview:
    """Return the overview of one group of a report."""
    choice = group.choice
    source = group.source
    study = report.resubmitted(group)
    repeated = report.commands if study else ()
    commands = commands_of(repeated, source.a_cell.script)
    trust = [
        usability(group),
        *warnings.in_brief(source, Tier.NUMBER),
        *dict.fromkeys(tables.unmeasured for tables in group.strategies),
        *_few_runs(group),
        group.suggestion,
    ]
    return Overview(
        answer=tuple(_answer(report, group)),
        deciding=tuple(words.deciding(choice, commands, study)) if choice else (),
        measured=(group.setting, _cells(group)),
        next_cells=words.next_cells(choice, commands, study) if choice else (),
        trust=(trust[0], *filter(None, trust[1:])),
        notes=tuple(warnings.in_brief(source, Tier.TABLE)),
    )


def _cells(group: ReportGroup) -> str:
    """Return how many cells have numbers, their sizes, batches, strategies and runs."""
    source = group.source
    device = group.source.device
    measured = sum(result.measured for result in source.cells)
    of_strategies = by_key(
        (captions.strategy_aside(row.strategy, source), row.gpus) for row in source.rows
    )
    parts = [
        f"{_sizes_text({*gpus}, device)}{strategy}"
        for strategy, gpus in of_strategies.items()
    ]
    batches = listed(sorted({row.batch_per_gpu for row in source.rows}))
    cpus = source.conditions.get(CPU_COUNT, "") if device is Device.CPU else ""
    threads = counted(source.a_cell.threads, "thread")
    per_host = f" {cpus} CPUs per host, {threads} per process." if cpus else ""
    return (
        f"{measured} of {counted(len(source.cells), 'cell')} measured: {', '.join(parts)}, "
        f"batch {batches} per {captions.unit(device)}{_runs_each(source.timed)}.{per_host}"
    )


def _sizes_text(sizes: Set[int], device: Device) -> str:
    unit = captions.unit(device) if sizes == {1} else captions.units(device)
    return f"{listed(sorted(sizes))} {unit}"


def _runs_each(rows: Sequence[Row]) -> str:
    """Return how many cells measured each row, where any has several."""
    numbers = {len(row.cells) - row.disturbed_runs for row in rows}
    undisturbed = "undisturbed " if any(row.disturbed_runs for row in rows) else ""
    if numbers <= {1} and not undisturbed:
        return ""
    runs = "run" if numbers == {1} else "runs"
    return f", {span(numbers)} {undisturbed}{runs} of each setting"


def _few_runs(group: ReportGroup) -> list[str]:
    """Return what too few runs leave open."""
    choice = group.choice
    doubts = [*words.doubts(choice)] if choice and choice.has_rivals else []
    counts = {len(row.cells) for row in group.source.timed}
    if counts == {1} and not doubts:
        doubts = ["each setting ran once: repeats= shows how much the times scatter"]
    return doubts


def usability(group: ReportGroup) -> str:
    """Return how many cells the tables leave out, and which tables can be used."""
    rows = group.source.timed
    runs = [run for row in rows for run in row.left_out]
    wholly = {run.slug for run in runs if run.role is Role.TIMED}
    partly = {run.slug for run in runs} - wholly
    cells = counted(sum(len(row.cells) for row in rows), "cell")
    texts = []
    for slugs, of_what in (
        (wholly, "disturbed and left out"),
        (partly, "disturbed after the timed epoch and left out of the gap's parts"),
    ):
        were = verb(len(slugs), "was", "were")
        if slugs:
            texts.append(f"{len(slugs)} of {cells} {were} {of_what}.")
    return " ".join([*texts, group.usability])


def _answer(report: Report, group: ReportGroup) -> Iterator[str]:
    choice = group.choice
    if choice is None:
        yield with_command(
            "No cell has a number; to see why", f"{PROGRAM} status {report.study}"
        )
    elif choice.has_rivals or choice.measure_again:
        yield words.answer(choice, report.resubmitted(group))
        if not choice.measure_again:
            yield from _evidence(group, choice)
    else:
        yield _only(choice)


def _evidence(group: ReportGroup, choice: Choice) -> Iterator[str]:
    """Yield the fastest cell, the gaps, and whether more than what is asked for is efficient."""
    gaps = group.main_gaps
    fastest = choice.fastest_cell
    winner = choice.winner
    is_other = fastest not in (None, winner, choice.reference)
    if fastest and is_other and fastest.row.place not in gaps:
        yield _fastest(fastest, choice)
    rows = {row.place: row for row in group.source.timed}
    for place, gap in gaps.items():
        yield gap_sentence(group.source, rows[place], gap)
    if group.gaps and not gaps:
        more = captions.units(group.source.device)
        yield f"Whether more {more} are faster cannot be said: data-quality checks failed."
    yield from accuracies(group.source, choice)
    if winner is None or words.is_smallest(choice):
        return
    larger = [step for step in choice.steps if step.smaller.row.gpus >= winner.row.gpus]
    for step in larger[:1]:
        would = "may" if choice.undecided else "would"
        yield f"More {would} not be efficient: {words.step_text(step)}."


def _only(choice: Choice) -> str:
    """Return the only cell with a number, and what it takes."""
    only = choice.reference
    has_failed = only.exclusion is Exclusion.FAILED_CHECK
    start = "Not reliable yet: one" if has_failed else "One"
    return (
        f"{start} cell has a number: {words.name(only, choice)}. It takes "
        f"{words.figures(only, choice)}."
    )


def _fastest(fastest: Candidate, choice: Choice) -> str:
    """Return the speedup of the fastest cell."""
    is_doubtful = choice.doubts_ratio(fastest)
    faster = mark(three_digits(choice.speedup(fastest)), is_doubtful=is_doubtful)
    rivals = choice.fastest.rivals if choice.fastest else ()
    near = names((rival.words for rival in rivals), separator="; ")
    beside = f" (not told apart from {near})" if near else ""
    return (
        f"Fastest: {words.name(fastest, choice)}{beside}, {faster} times the speed of "
        f"{choice.reference.words}, efficiency {words.efficiency(fastest, choice)}."
    )


def main_strategy(group: ReportGroup) -> StrategyTables | None:
    """Return the tables of the strategy to ask for; else of the first one with several GPUs."""
    winner = group.choice.winner if group.choice else None
    for tables in group.strategies:
        if winner and tables.strategy is winner.row.strategy:
            return tables
    return next(iter(group.strategies), None)
