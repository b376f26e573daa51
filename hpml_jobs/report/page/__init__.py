"""The page of a study: one HTML file, and the same as Markdown with files of its pictures."""

from hpml_jobs.report import plots
from hpml_jobs.report.page.contents import contents
from hpml_jobs.report.page.html import html_document
from hpml_jobs.report.page.markdown import markdown_document
from hpml_jobs.report.report import Report

HTML, MARKDOWN = "report.html", "report.md"


def files(report: Report) -> dict[str, str | bytes]:
    """Return the page in both formats and its pictures as PNG and SVG, by file name."""
    pictures = plots.pictures(report)
    page = contents(report, pictures)
    html = html_document(page)  # first: in the files, a picture has its heading and caption inside
    return {HTML: html, MARKDOWN: markdown_document(page), **plots.files(pictures.values())}
