"""The page of a study: one HTML file, and the same as Markdown."""

import re
from collections.abc import Mapping

from hpml_jobs.report.page.contents import contents
from hpml_jobs.report.page.html import html_document
from hpml_jobs.report.page.markdown import markdown_document
from hpml_jobs.report.report import Report

HTML, MARKDOWN = "report.html", "report.md"


def files(report: Report) -> dict[str, str]:
    """Return the page in both formats, by file name."""
    page = contents(report)
    return {HTML: html_document(page), MARKDOWN: markdown_document(page)}


def linked(files: Mapping[str, str]) -> list[str]:
    """Return the names of the pictures that the Markdown file links; the HTML file has its own."""
    return re.findall(r"^!\[.*\]\((\w+\.svg)\)$", files[MARKDOWN], re.MULTILINE)
