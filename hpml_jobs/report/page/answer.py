"""The section Answer of a page: what to ask for, the speedup by size, a paragraph to copy."""

from collections.abc import Iterator

from hpml_jobs import __version__
from hpml_jobs.report.choose import proposal, words
from hpml_jobs.report.choose.rules import Choice
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.numbers import cost, per_second, ratio, seconds
from hpml_jobs.report.overview import Overview, overview
from hpml_jobs.report.page.items import Bullets, Headline, Item, Quote, Sheet, Text
from hpml_jobs.report.report import Report, ReportGroup

NO_NUMBER = "No cell has a number yet: the notes under the tables, and hpml-jobs status, say why."
PROPOSAL = "Paragraph for a proposal"
ONE_SIZE = "A paragraph for a proposal needs usable numbers of two sizes."


def answer_items(report: Report, group: ReportGroup) -> Iterator[Item]:
    """Yield the answer, what limits it, the speedup by size, and the paragraph for a proposal."""
    choice, device = group.choice, group.source.device
    if choice is None:
        yield Text(NO_NUMBER, is_lead=True)
        return
    summary = overview(report, group)
    yield _headline(choice, group, summary)
    sentences = summary.answer if choice.has_rivals else ()
    lines = [line for line in sentences if line != words.answer(choice, device, report.study)]
    undecided = words.undecided(choice, device).removeprefix("; ")
    limits = [undecided, *words.doubts(choice, device)]
    lines += [f"{line[0].upper()}{line[1:]}." for line in limits if line]
    # no full stop after a command
    lines += [f"{line[0].upper()}{line[1:]}" for line in summary.next_cells]
    yield from [Bullets(tuple(lines))] if lines else []
    table = proposal.sizes(group.source, choice)
    yield Sheet(table, table.caption, table.notes)
    if len(table.lines) > 1 and not choice.measure_again:
        yield Quote(PROPOSAL, proposal.proposal(group.source, choice, _version(group)))
    else:
        yield Text(ONE_SIZE)


def _version(group: ReportGroup) -> str:
    """Return the versions of hpml_jobs that measured the cells."""
    records = (result.record for result in group.source.cells)
    versions = {record.facts.hpml_jobs for record in records if record and record.facts}
    return " and ".join(sorted(versions)) or __version__


def _headline(choice: Choice, group: ReportGroup, summary: Overview) -> Headline:
    device = group.source.device
    if not choice.has_rivals:
        return Headline(" ".join(summary.answer))
    if choice.ask is None:
        return Headline(summary.answer[-1])
    asked = choice.ask.candidate
    per_work = f"per {captions.work_text(asked.work)}"
    figures = [(f"{seconds(asked.epoch_s)} s", per_work)]
    if asked.units_per_s is not None:
        figures.append((per_second(asked.units_per_s), f"{asked.unit.value} per second"))
    if asked is not choice.reference:
        over = words.size(choice.reference, device)
        figures.append((ratio(choice.speedup(asked)), f"speedup over {over}"))
    efficiency, gap, against = words.efficiency(asked, choice, device).partition(" ")
    figures += [
        (efficiency, f"parallel efficiency{gap}{against}"),
        (cost(asked.gpu_s), f"{captions.cost_unit(device)} {per_work}"),
    ]
    answer = f"{words.ask_words(choice, device)} {words.name(asked, device)}."
    return Headline(answer, tuple(figures))
