"""What is handed in: the page, a PDF of it, the same text to edit, and the commands."""

import os
import shutil
import subprocess
from pathlib import Path

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.text import printable
from hpml_jobs.lab.questions import QUESTIONS, TITLE, section
from hpml_jobs.report import page, pictures
from hpml_jobs.report.folder import write
from hpml_jobs.report.page.formats import (
    Item,
    Paragraph,
    Section,
    html_document,
    markdown_document,
)
from hpml_jobs.report.report import Report

PDF, README = "report.pdf", "README.md"

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
"""Programs that print a page as PDF without a display."""

PRINT_S = 120
"""The time limit of a browser that prints, in seconds."""

NOBODY = "Name: (to be filled in), number: (to be filled in)"

OWN_WORDS = "YOUR WORDS: replace this line. A program measured the numbers; the reasons are yours."
"""The place below each question, in the text to edit."""

ABOUT = """\
# Study {study}

{student}

| file | content |
|---|---|
| `report.html`, `report.pdf` | answer, tables, pictures, hardware and software |
| `report.md` | the same to edit, with a line `YOUR WORDS` below each question |

## Commands of the study

```bash
{commands}
```
"""


def write_handin(report: Report, folder: Path, student: str | None) -> list[Path]:
    """Write what is handed in, with a PDF where a browser prints the page.

    Raises:
        UsageError: the folder has files, which may have been edited.
        HpmlError: the folder cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--handin {folder} is not empty: name a new folder")
    drawn = pictures.pictures(report)
    whole = page.public_page(report, drawn, (section(report),))
    signed = whole._replace(subtitle=(student or NOBODY, *whole.subtitle))
    sections = tuple(map(_with_places, signed.sections))
    commands = "\n".join(report.commands) or "# no submission is recorded"
    contents: dict[str, str | bytes] = {
        page.HTML: html_document(signed),
        page.MARKDOWN: markdown_document(signed._replace(sections=sections)),
        README: ABOUT.format(
            study=report.study, student=student or NOBODY, commands=commands
        ),
        **pictures.files(drawn.values()),
    }
    texts = {
        name: printable(content) if isinstance(content, str) else content
        for name, content in contents.items()
    }
    written = write(texts, folder, (), lambda _: True)
    if print_pdf(folder / page.HTML, folder / PDF):
        written.append(folder / PDF)
    return written


def _with_places(of_page: Section) -> Section:
    """Return the section of the questions with a place for the student's words for each."""
    if of_page.title != TITLE:
        return of_page
    items: list[Item] = [*of_page.items]
    for question in QUESTIONS:
        items += [Paragraph(question.heading), Paragraph(OWN_WORDS)]
    return of_page._replace(items=tuple(items))


def print_pdf(page: Path, pdf: Path) -> bool:
    """Print a page by a browser without a display; return False where none can."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return False
    options = [
        "--headless",
        "--disable-gpu",
        "--no-pdf-header-footer",
        f"--print-to-pdf={pdf}",
    ]
    # Chromium has none for root
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [browser, *options, page.resolve().as_uri()]
    try:
        subprocess.run(command, capture_output=True, timeout=PRINT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return pdf.exists()
