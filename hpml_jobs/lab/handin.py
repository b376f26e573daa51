"""What is handed in: the page, a PDF of it, the same text to edit, tables and commands."""

import contextlib
import shutil
import subprocess
from pathlib import Path

from hpml_jobs.core.errors import UsageError
from hpml_jobs.lab.questions import section
from hpml_jobs.report.folder import write
from hpml_jobs.report.frame.picture import png_files
from hpml_jobs.report.page.contents import HTML, MARKDOWN, public_page, unfolded
from hpml_jobs.report.page.formats import html_document, markdown_document
from hpml_jobs.report.report import Report, pictures

PDF = "report.pdf"

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
"""Programs that print a page as PDF without a display."""

PRINT_S = 120
"""The time limit of a browser that prints, in seconds."""

OWN_WORDS = "YOUR WORDS: replace this line."
"""The place below each answer, in the text to edit."""

ABOUT = """\
# Study {study}

{student}

| file | content |
|---|---|
| `report.md` | to edit and hand in: answers, tables, and lines `YOUR WORDS` for your reasons |
| `report.html`, `report.pdf` | the same without your words; the page also has all other tables |

## Commands of the study

```bash
{commands}
hpml-jobs collect {study} --handin FOLDER
```
"""


def write_handin(report: Report, folder: Path, student: str | None) -> None:
    """Write what is handed in, with a PDF where a browser prints the page.

    Raises:
        UsageError: the folder exists, with files that may have been edited, or cells may still run.
        HpmlError: the folder cannot be written.
    """
    if report.measured_again:
        raise UsageError(
            f"--handin: pending or running: {report.measured_again}; --wait waits"
        )
    if folder.exists():
        raise UsageError(f"--handin {folder} exists already: name a new folder")
    drawn = pictures(report)
    html, text = (
        public_page(report, drawn, (section(report, drawn, own_words),))
        for own_words in ("", OWN_WORDS)
    )
    name = student or "Name: (to be filled in), number: (to be filled in)"
    contents: dict[str, str | bytes] = {
        HTML: html_document(html._replace(subtitle=(name,))),
        MARKDOWN: markdown_document(unfolded(text)._replace(subtitle=(name,))),
        "README.md": ABOUT.format(
            study=report.study,
            student=name,
            commands="\n".join(dict.fromkeys(report.commands)),
        ),
        **png_files(drawn.values()),
    }
    write(contents, folder, (), lambda _: True)
    print_pdf(folder / HTML, folder / PDF)


def print_pdf(page: Path, pdf: Path) -> None:
    """Print a page by a browser without a display, where one is."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return
    options = [
        "--headless",
        "--no-pdf-header-footer",
        "--no-sandbox",  # Chromium has none for root, and the page is ours
        f"--print-to-pdf={pdf}",
    ]
    command = [browser, *options, page.resolve().as_uri()]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, capture_output=True, timeout=PRINT_S, check=True)
