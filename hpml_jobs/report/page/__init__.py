"""The page of a study: one HTML file, and the same as Markdown with files of its pictures."""

from hpml_jobs.core.text import printable
from hpml_jobs.report import pictures
from hpml_jobs.report.page.contents import contents
from hpml_jobs.report.page.formats import html_document, markdown_document, with_texts
from hpml_jobs.report.report import Report
from hpml_jobs.study.redaction import Redactor, names_in

HTML, MARKDOWN = "report.html", "report.md"


def files(report: Report) -> dict[str, str | bytes]:
    """Return the page in both formats and its pictures as PNG and SVG, by file name.

    Secrets, accounts, home folders and control characters are taken out of its texts before they
    are escaped: the page is given to others.
    """
    drawn = pictures.pictures(report)
    redactor = Redactor(names_in((), report.commands), anonymous=False)
    page = with_texts(contents(report, drawn), lambda text: printable(redactor.text(text, HTML)))
    html = html_document(page)  # first: in the files, a picture has its heading and caption inside
    return {HTML: html, MARKDOWN: markdown_document(page), **pictures.files(drawn.values())}
