"""The paragraph for a proposal below the answer of a page."""

from collections.abc import Iterator

from hpml_jobs.extras.proposal.paragraph import paragraph, refusal
from hpml_jobs.report.choose.rules import Choice
from hpml_jobs.report.page.formats import Item, Paragraph, Quote
from hpml_jobs.results.groups import ConditionGroup

TITLE = "Paragraph for a proposal"
TOTAL = "To add the total cost of a project: hpml-jobs choose {study} epochs=90 runs=10"


def below_answer(study: str, group: ConditionGroup, choice: Choice) -> Iterator[Item]:
    """Yield the paragraph and the command that adds a total, or why there is none."""
    is_of_windows = group.work is not None  # choose takes no epochs= of them
    reason = refusal(choice, is_preliminary=is_of_windows)
    if reason:
        yield Paragraph(f"{reason[0].upper()}{reason[1:]}")
        return
    yield Quote(TITLE, paragraph(group, choice))
    if not is_of_windows:
        yield Paragraph(TOTAL.format(study=study))
