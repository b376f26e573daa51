"""The contents of a study's page in the order of reading: the answer first."""

from collections.abc import Iterator
from functools import partial

from hpml_jobs import __version__
from hpml_jobs.core.check_result import Tier
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import counted
from hpml_jobs.report import warnings
from hpml_jobs.report.choose import words
from hpml_jobs.report.choose.rules import Choice
from hpml_jobs.report.choose.sizes import sizes
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.numbers import cost, per_second, three_digits
from hpml_jobs.report.frame.picture import Picture
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.overview import Overview, overview, usability
from hpml_jobs.report.page.facts import hardware
from hpml_jobs.report.page.formats import (
    Bullets,
    Commands,
    FactTable,
    Figure,
    Headline,
    Item,
    Notices,
    Page,
    Paragraph,
    Section,
    ShownTable,
)
from hpml_jobs.report.pictures import TRAINING
from hpml_jobs.report.report import CHECKS, Report, ReportGroup

NO_CELLS = "This study has no cells yet."
UNREADABLE = "No cell of this study can be read."
SEVERAL = "{groups} groups of cells, measured under different conditions: they are not compared."
TRUST = "What to trust: data-quality checks"
ONE_RUN = "One run of {cells}: how much times scatter between runs is not known."
LAB_GRIDS = ("grid=lab", "grid=hw5")
GLOSSARY = (
    "A cell is one measurement of a configuration; single is training on one {unit} without a "
    "strategy; a rank is one process of a cell, and rank 0 is the first. Exposed communication is "
    "what no computation hides; stall is waiting for data. A number with ! may be wrong: see What "
    "to trust. {runs}, unless a table says otherwise."
)
"""The words of the tables, above the first one."""


def contents(
    report: Report, pictures: dict[str, Picture], endings: tuple[Section, ...]
) -> Page:
    """Return the page of a report with its pictures, by name; `endings` follow its tables."""
    subtitle: tuple[str, ...] = ()
    if report.several:
        subtitle = (SEVERAL.format(groups=len(report.groups)),)
        sections = (*_of_several(report, pictures), *_endings(report, endings))
    elif report.groups:
        of_one = _of_one(report, report.groups[0], pictures)
        sections = (*of_one, *_endings(report, endings))
    else:
        text = UNREADABLE if report.unplaced else NO_CELLS
        answer = Section("answer", "Answer", (Paragraph(text, is_lead=True),))
        sections = (answer, *_unplaced(report))
    return Page(
        title=report.study,
        subtitle=subtitle,
        sections=tuple(
            section for section in sections if section.items or section.sections
        ),
        footer=f"hpml_jobs {__version__}",
        is_whole=any(grid in line for grid in LAB_GRIDS for line in report.commands),
    )


def _of_one(
    report: Report, group: ReportGroup, pictures: dict[str, Picture]
) -> tuple[Section, ...]:
    answer, *sections = _group_sections(report, group, "")
    scaling, training = _figures(pictures)
    headline, *reasons = answer.items
    gap = [figure for figure in scaling if figure.picture.name == "gap"]
    others = tuple(figure for figure in scaling if figure not in gap)
    return (
        answer._replace(items=(headline, *gap, *reasons)),
        Section("pictures", "Scaling", others),
        *sections,
        Section("training", "Training", training),
    )


def _of_several(report: Report, pictures: dict[str, Picture]) -> tuple[Section, ...]:
    scaling, training = _figures(pictures)
    answers_by_group = FactTable(
        "Answer of each group",
        ("group", "answer"),
        tuple((_group_title(group), _sentence(group)) for group in report.groups),
    )
    differing = Bullets(tuple(report.differences))
    intro = (answers_by_group, Paragraph("The groups differ in:"), differing)
    groups = []
    for group in report.groups:
        sections = _group_sections(report, group, f"group{group.number}-")
        differences = f"Differs from the other groups in: {group.differences}."
        items = (Paragraph(differences),) if group.differences else ()
        sections = tuple(section for section in sections if section.items)
        anchor = f"group{group.number}"
        groups.append(Section(anchor, _group_title(group), items, sections=sections))
    return (
        Section("answer", "Answers", intro),
        Section("pictures", "Scaling", scaling),
        *groups,
        Section("training", "Training", training),
    )


def _group_title(group: ReportGroup) -> str:
    return f"Group {group.number}: {group.title}"


def _sentence(group: ReportGroup) -> str:
    return (
        words.answer(group.choice, None)
        if group.choice
        else "No cell has a number yet."
    )


def _figures(drawn: dict[str, Picture]) -> tuple[tuple[Figure, ...], ...]:
    """Return the pictures of scaling, and those of training."""
    scaling = [Figure(shown) for name, shown in drawn.items() if name not in TRAINING]
    training = [Figure(shown) for name, shown in drawn.items() if name in TRAINING]
    return tuple(scaling), tuple(training)


def _group_sections(
    report: Report, group: ReportGroup, prefix: str
) -> tuple[Section, ...]:
    """Return the sections of a group."""
    printed = {group.setting, *(text for _, text in warnings.remarks(group.source))}
    runs = captions.runs(group.source.timed)
    full = [table for table in group.full if table.label != CHECKS]
    folded = tuple(_sheet(table, {*printed}, runs, is_folded=True) for table in full)
    main_sheets = tuple(_sheet(table, printed, runs) for table in group.lab)
    unit = captions.unit(group.source.device)
    of_runs = runs.removesuffix(".")
    intro = Paragraph(GLOSSARY.format(unit=unit, runs=of_runs))
    tables: tuple[Item, ...] = (intro, *main_sheets) if main_sheets else ()
    return (
        Section(f"{prefix}answer", "Answer", tuple(answer_items(report, group))),
        Section(f"{prefix}tables", "Tables 1 to 3", tables),
        Section(f"{prefix}trust", TRUST, tuple(_trust(group))),
        Section(f"{prefix}full", "Choice and other tables", folded),
        Section(f"{prefix}environment", *hardware(group)),
    )


def _sheet(
    table: Table, printed: set[str], runs: str = "", *, is_folded: bool = False
) -> ShownTable:
    """Return a table without what is `printed`, and without the sentence on its runs."""
    lines = table.caption_after(printed, [table.setting])
    caption = [line.replace(runs, "").strip() for line in lines]
    notes = table.notes_after(printed)
    return ShownTable(table, tuple(filter(None, caption)), tuple(notes), is_folded)


def _trust(group: ReportGroup) -> Iterator[Item]:
    """Yield which tables can be used, then the causes of doubt, the most serious first."""
    if text := usability(group):
        yield Paragraph(text, is_lead=True)
    if group.suggestion:
        yield Paragraph(group.suggestion)
    source = group.source
    notices = [
        (cause.consequence, warnings.cause_text(source, cause))
        for cause in warnings.causes(source, [Tier.NUMBER, Tier.TABLE])
    ]
    if notices:
        yield Notices(tuple(notices))
    checks = next((table for table in group.full if table.label == CHECKS), None)
    if checks is not None:
        yield Paragraph(" ".join(checks.caption))


def _endings(report: Report, endings: tuple[Section, ...]) -> Iterator[Section]:
    """Yield the sections that are of all groups together."""
    tables = tuple(_sheet(table, set(), is_folded=True) for table in report.tables)
    yield Section("together", "Tables of all groups", tables)
    yield from endings
    yield Section("reproduce", "Reproduction", tuple(_reproduction(report)))
    yield from _unplaced(report)


def _unplaced(report: Report) -> Iterator[Section]:
    """Yield the section of the cells that are in no table, if there are any."""
    if report.unplaced:
        lines = tuple(f"{result.slug}: {result.reason}" for result in report.unplaced)
        text = f"{counted(len(lines), 'cell')} in no table:"
        yield Section("unplaced", "Not in any table", (Paragraph(text), Bullets(lines)))


def _reproduction(report: Report) -> Iterator[Item]:
    text = (
        "The commands of the submissions are not recorded: the study was imported, or submitted "
        "by a version before 0.7.0. This page was written by:"
    )
    if report.commands:
        text = (
            "The commands that submitted the cells, and the one that wrote this page:"
        )
    yield Paragraph(text)
    yield Commands((*report.commands, f"hpml-jobs collect {report.study}"))
    yield Paragraph(
        "Cells that are finished are not submitted again. The raw values are in record.json of "
        "each cell, the unrounded figures in tables.json and the CSV files beside this page. "
        "docs/formulas.md derives each formula."
    )


NO_NUMBER = "No cell has a number yet: the notes under the tables, and hpml-jobs status, say why."


def answer_items(report: Report, group: ReportGroup) -> Iterator[Item]:
    """Yield the answer, what limits it, what ran, and the speedup by size."""
    choice = group.choice
    summary = overview(report, group)
    measured = [Paragraph(line) for line in summary.measured]
    if choice is None:
        yield from (Paragraph(NO_NUMBER, is_lead=True), *measured)
        return
    yield _headline(choice, summary)
    if lines := _limits(choice, summary):
        yield Bullets(tuple(lines))
    yield from measured
    table = sizes(group.source, choice)
    yield _sheet(table, {table.setting}, captions.runs(group.source.timed))


def _limits(choice: Choice, summary: Overview) -> list[str]:
    """Return the sentences below the headline: what limits it, and the cells worth a run."""
    lines = [f"{line}." for line in words.undecided(choice)]
    if choice.has_rivals:
        key_cells = [choice.reference, *words.asked(choice)]
        single = [cell.words for cell in key_cells if len(cell.row.cells) == 1]
        cells = " and of ".join(dict.fromkeys(single))
        lines += [ONE_RUN.format(cells=cells)] if single else []
        lines += summary.answer[1:]
    lines += [f"{line[0].upper()}{line[1:]}." for line in words.doubts(choice)]
    # no full stop after a command
    return lines + [f"{line[0].upper()}{line[1:]}" for line in summary.next_cells]


def _headline(choice: Choice, summary: Overview) -> Headline:
    """Return the answer with the figures of the cell to ask for, if the runs decide on one."""
    winner = choice.winner
    if not choice.has_rivals:
        return Headline(" ".join(summary.answer))
    if winner is None:
        return Headline(summary.answer[0])
    advice = words.advice(choice, is_short=True)
    if choice.undecided:
        return Headline(f"{advice}.")
    marked = partial(captions.mark, is_doubtful=winner.doubtful)
    per_work = f"per {captions.work_text(winner.timing.work)}"
    figures = {per_work: f"{words.time(winner)} s"}
    if (rate := winner.timing.units_per_s) is not None:
        figures[f"{winner.timing.unit.value} per second"] = marked(per_second(rate))
    if winner is not choice.reference:
        is_doubtful = choice.doubts_ratio(winner)
        speedup = captions.mark(
            three_digits(choice.speedup(winner)), is_doubtful=is_doubtful
        )
        figures[f"speedup over {words.size(choice.reference)}"] = speedup
    against = words.efficiency_reference(winner, choice)
    figures[f"parallel efficiency{against}"] = words.efficiency_figure(winner, choice)
    if choice.device is Device.CUDA:  # processes on a CPU are not charged
        unit = captions.cost_unit(choice.device)
        figures[f"{unit} {per_work}"] = marked(cost(winner.gpu_s))
    of_names = tuple((value, name) for name, value in figures.items())
    return Headline(f"{advice}: {words.rule(choice)}.", of_names)
