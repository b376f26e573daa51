"""The page of a study: one HTML file, and the same as Markdown with files of its pictures."""

from hpml_jobs.core.text import printable
from hpml_jobs.report.frame.picture import Picture, png_files
from hpml_jobs.report.page.contents import contents
from hpml_jobs.report.page.formats import (
    Page,
    Section,
    html_document,
    markdown_document,
    with_texts,
)
from hpml_jobs.report.report import Report, pictures

HTML, MARKDOWN = "report.html", "report.md"


def files(
    report: Report, questions: tuple[Section, ...] = ()
) -> dict[str, str | bytes]:
    """Return the page in both formats and its pictures as PNG, by file name."""
    drawn = pictures(report)
    page = public_page(report, drawn, questions)
    # first: in the files, a picture has its heading and caption inside
    html = html_document(page)
    return {
        HTML: html,
        MARKDOWN: markdown_document(page),
        **png_files(drawn.values()),
    }


def public_page(
    report: Report, drawn: dict[str, Picture], questions: tuple[Section, ...] = ()
) -> Page:
    """Return the page of a report; control characters are taken out of its texts.

    `questions` are sections before the answer.
    """
    page: Page = with_texts(contents(report, drawn, questions), printable)
    return page
