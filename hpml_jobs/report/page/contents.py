"""The contents of a study's page in the order of reading: the answer first."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TypeAlias

from hpml_jobs.core.check_result import Affected, Tier
from hpml_jobs.core.environment import COMPARED, text_of
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import VERSION, counted, few, printable
from hpml_jobs.core.value import by_key
from hpml_jobs.report import warnings
from hpml_jobs.report.answer import answer_of, unmeasured_cells
from hpml_jobs.report.frame.picture import Picture, png_files
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.lab.replicas import unreadable
from hpml_jobs.report.page.formats import (
    Bullets,
    Commands,
    FactTable,
    Figure,
    Headline,
    Item,
    Page,
    Paragraph,
    Section,
    ShownTable,
    html_document,
    markdown_document,
    with_texts,
)
from hpml_jobs.report.report import CHECKS, Report, ReportGroup, pictures
from hpml_jobs.results.conditions import in_words, precision_of
from hpml_jobs.results.groups import ConditionGroup

HTML, MARKDOWN = "report.html", "report.md"

GLOSSARY = Bullets(
    (
        "Run, or cell: one measurement, e.g. of 2 processes at batch 64.",
        "Speedup: how many times as fast. Efficiency: the speedup divided by the ideal one. "
        "Likely: a confidence interval; the true value is probably inside. Rank: a process.",
        "ddp: DistributedDataParallel. Processes average the gradients of their own batches.",
        "Communication: of gradients and buffers. Overlapped: while the process computes.",
        "Waiting: for the slowest process, or for a free CPU. Data wait: for the next batch.",
        "Unexplained: lost, but to no cause that was measured; or noise.",
        "To explain a word: hpml-jobs help WORD",
    )
)
"""The words of the page."""


Questions: TypeAlias = Callable[[Report, dict[str, Picture]], Section]
"""Makes the section of the lab's questions from a report and its drawn pictures."""


def files(report: Report, questions: Questions) -> dict[str, str | bytes]:
    """Return the page in both formats and its pictures as PNG, by file name."""
    drawn = pictures(report)
    of_lab = (questions(report, drawn),) if report.is_of_lab else ()
    page = public_page(report, drawn, of_lab)
    # first: in the files, a picture has its heading and caption inside
    html = html_document(page)
    return {
        HTML: html,
        MARKDOWN: markdown_document(unfolded(page) if of_lab else page),
        **png_files(drawn.values()),
    }


def unfolded(page: Page) -> Page:
    """Return a page without its folded sections."""
    return page._replace(sections=tuple(s for s in page.sections if not s.summary))


def public_page(
    report: Report, drawn: dict[str, Picture], questions: tuple[Section, ...]
) -> Page:
    """Return the page of a report with its drawn pictures, by name; control characters go.

    `questions` of a lab have the answer, its pictures and most tables.
    """
    if questions:
        sections = [*questions, *_after_questions(report)]
    elif report.several:
        sections = _of_several(report, drawn)
    elif report.groups:
        sections = _of_one(report, report.groups[0], drawn)
    else:
        none = Paragraph("This study has no cells yet, or none can be read.")
        sections = [Section("answer", "Answer", (none,))]
    whole = chain(sections, _endings(report, drawn))
    page = Page(
        title=report.study,
        sections=tuple(s for s in whole if s.items or s.sections),
        footer=f"hpml_jobs {VERSION}",
    )
    public: Page = with_texts(page, printable)
    return public


def _after_questions(report: Report) -> Iterator[Section]:
    """Yield the warnings of a lab, and the tables of its speedups that no question has."""
    doubts: list[Item] = []
    more = []
    for group in report.groups:
        doubts += map(Paragraph, unmeasured_cells(report, group))
        # without a speedup no answer has a time
        if group.source.series:
            doubts += _marked(group, Tier.NUMBER, Tier.TABLE)
            more.append(_group_sections(report, group, f"group{group.number}-")[-1])
        else:
            doubts += _marked(group, Tier.NUMBER, of={Affected.LEARNING})
    yield Section("doubts", "Warnings", tuple(doubts))
    yield from more


def _of_one(
    report: Report, group: ReportGroup, drawn: dict[str, Picture]
) -> list[Section]:
    answer, *sections = _group_sections(report, group, "")
    headline, *others = answer.items
    items = (headline, *figures(drawn, "speedup"), *others, *figures(drawn, "gap"))
    return [answer._replace(items=items), *sections]


def _of_several(report: Report, drawn: dict[str, Picture]) -> list[Section]:
    groups = report.first_screen.groups
    answers = tuple((group.name, answer_of(report, group).sentence) for group in groups)
    table = FactTable("Answer of each group", ("group", "answer"), answers)
    of_groups = []
    older = [group for group in report.groups if group.is_replaced]
    for group in (*groups, *older):
        sections = _group_sections(report, group, f"group{group.number}-")
        anchor = f"group{group.number}"
        shown = tuple(section for section in sections if section.items)
        title = f"Group {group.number}: {group.name}"
        of_groups.append(Section(anchor, title, sections=shown))
    return [
        Section(
            "answer",
            "Overview",
            (table, *figures(drawn, "speedup", "gap")),
        ),
        *of_groups,
    ]


def figures(drawn: dict[str, Picture], *names: str) -> tuple[Item, ...]:
    """Return the pictures of these names, where they are drawn."""
    return tuple(Figure(drawn[name]) for name in names if name in drawn)


def _folded(anchor: str, title: str, items: tuple[Item, ...]) -> Section:
    return Section(anchor, title, items, "show")


def _group_sections(report: Report, group: ReportGroup, prefix: str) -> list[Section]:
    """Return the sections of a group: its answer, its first table, marks, then what is folded."""
    printed = {group.setting}
    main = group.main_table
    first = [main] if main else []
    first += [t for t in group.lab if t.label.startswith("table1") and t != main]
    sheets = tuple(_sheet(table, printed) for table in first)
    in_files = _in_files(group)
    more = group.full if report.is_of_lab else group.tables
    folded = tuple(
        _sheet(table, {*printed})
        for table in more
        if table not in first and table.label.partition("-")[0] not in in_files
    )
    marks = tuple(_marked(group, Tier.NUMBER, Tier.TABLE))
    return [
        Section(f"{prefix}answer", "Answer", tuple(_answer(report, group))),
        Section(f"{prefix}tables", "Table 1", sheets),
        Section(f"{prefix}marks", "Warnings", marks),
        _folded(f"{prefix}full", "More tables", folded),
    ]


def _in_files(group: ReportGroup) -> set[str]:
    """Return the labels, without strategies, of the tables that only the files have."""
    source = group.source
    labels = {"q1", "table2r", "table3r", "communication", CHECKS}
    if group.main_gaps.keys() == source.gaps.keys():
        labels.add("gap")  # its picture has all
    is_plain = all(row.setup.is_plain for row in source.timed)
    if is_plain and not unreadable(source):
        labels.add("replicas")
    if source.device is Device.CPU:
        labels.add("choice")  # nobody pays for it
    return labels


def _sheet(table: Table, printed: set[str]) -> ShownTable:
    """Return a table without what is `printed`: the sentence on its runs, for example."""
    return ShownTable(
        table,
        caption=tuple(table.caption_after(printed, [table.setting])),
        notes=tuple(table.notes_after(printed)),
    )


def _answer(report: Report, group: ReportGroup) -> Iterator[Item]:
    """Yield the answer with its figures, why it is not more, and what was measured."""
    answer = answer_of(report, group)
    yield Headline(answer.sentence, answer.main_numbers)
    yield from map(Paragraph, (*answer.lines, *answer.marks))
    measured = sum(result.measured for result in group.source.cells)
    runs = counted(len(group.source.cells), "run")
    yield Paragraph(f"{measured} of {runs} measured. {group.setting}")


def _marked(
    group: ReportGroup, *tiers: Tier, of: Iterable[Affected] = Affected
) -> Iterator[Item]:
    """Yield what makes the numbers `of` a group doubtful or limits them, the most serious first."""
    causes = [
        cause
        for cause in warnings.causes(group.source, tiers)
        if not {*of}.isdisjoint(cause.result.affects)
    ]
    if causes:
        texts = (warnings.cause_text(group.source, cause) for cause in causes)
        yield Bullets(tuple(dict.fromkeys(texts)))


def _endings(report: Report, drawn: dict[str, Picture]) -> Iterator[Section]:
    """Yield the sections that are of all groups together."""
    more = ["phases"]
    if not report.is_of_lab:
        tables = (_sheet(table, set()) for table in report.tables)
        items = (*tables, *figures(drawn, "histograms"))
        yield _folded("together", "Tables of all groups", items)
        more.append("loss")
    yield _folded("pictures", "More pictures", figures(drawn, *more))
    yield _folded("words", "Words", (GLOSSARY,))
    yield _folded("environment", "Environment", _hardware(report))
    yield _folded("commands", "Commands", tuple(_commands(report)))
    if report.unplaced:
        lines = tuple(f"{result.slug}: {result.reason}" for result in report.unplaced)
        text = f"{counted(len(lines), 'cell')} in no table:"
        yield Section("unplaced", "Not in any table", (Paragraph(text), Bullets(lines)))


def _commands(report: Report) -> Iterator[Item]:
    yield Commands((*report.commands, f"hpml-jobs collect {report.study}"))
    yield Paragraph(
        "The raw values are in record.json of each cell, the unrounded figures in tables.json and "
        "the CSV files beside this page. docs/formulas.md derives each formula."
    )


_OF_FACTS = {
    "GPU": "gpu_model",
    "topology": "topology",
    "CPU": "cpu_model",
    "CPUs of a host": "cpu_count",
    "operating system": "os",
    "container": "container",
    "driver": "driver",
    "CUDA": "cuda",
    "cuDNN": "cudnn",
    "NCCL": "nccl",
    "backend": "backend",
    "Python": "python",
    "torch": "torch",
    "torchvision": "torchvision",
    "hpml_jobs": "hpml_jobs",
    "hpml_jobs, commit": "commit",
    "your code, commit": "code_commit",
}
"""Properties by the names of their fields."""


def environment(groups: Iterable[ConditionGroup]) -> dict[str, str]:
    """Return the different values of each property in words; nothing of what is not known."""
    results = chain.from_iterable(group.cells for group in groups)
    pairs = chain.from_iterable(
        _properties(result.record) for result in results if result.record
    )
    values = by_key(
        (name, in_words(value)) for name, value in pairs if value not in (None, "")
    )
    return {name: few(dict.fromkeys(words)) for name, words in values.items()}


def _properties(record: Record) -> Iterator[tuple[str, object]]:
    """Yield the name of each property with a value of it."""
    for host in [rank.host for rank in record.ranks] or record.attempt.hosts:
        yield "hosts", host
    if facts := record.facts:
        for name, field in _OF_FACTS.items():
            yield name, getattr(facts, field)
        variables = facts.nccl_environment | facts.environment
        yield "environment variables", text_of(COMPARED, variables)
        yield "precision", precision_of(record)
    for card in record.cards:
        if card.clock_mhz:
            clocks = f"{card.clock_mhz} ({card.max_sm_clock_mhz})"
            yield "SM clock, MHz (of at most)", clocks
    yield "measured", (record.attempt.started or "")[:10]
    yield "imported from", record.source.file


def _hardware(report: Report) -> tuple[Item, ...]:
    """Return the table of the hardware and software; nothing without facts."""
    rows = tuple(environment(report.sources).items())
    table = FactTable("Hardware and software", ("property", "value"), rows)
    return (table,) if rows else ()
