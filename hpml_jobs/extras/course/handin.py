"""What is handed in: page, text to edit, README, script, notebook and its data."""

import json
import os
import shutil
import subprocess
from collections import Counter
from itertools import chain
from pathlib import Path
from string import Template
from typing import NamedTuple

from hpml_jobs import __version__
from hpml_jobs.core.built_in import DATASETS
from hpml_jobs.core.cell import Cell, Protocol
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Loader, Strategy
from hpml_jobs.core.text import printable
from hpml_jobs.core.value import Value
from hpml_jobs.core.workload import Loss, Optimizer
from hpml_jobs.extras.course.edited import placed
from hpml_jobs.report import page, pictures
from hpml_jobs.report.files.markdown import escaped
from hpml_jobs.report.folder import SHEET_FILES, tables, write
from hpml_jobs.report.frame.captions import MARK
from hpml_jobs.report.frame.learning import training_loss
from hpml_jobs.report.page.formats import (
    Answers,
    Item,
    Paragraph,
    Section,
    html_document,
    markdown_document,
)
from hpml_jobs.report.report import Report
from hpml_jobs.study.files import encode, read_valid, write_whole

PDF, SCRIPT, NOTEBOOK, README = "report.pdf", "lab.py", "tables.ipynb", "README.md"

EDITABLE = (page.MARKDOWN, README, SCRIPT, NOTEBOOK)
"""The texts that a student may edit."""

EARLIER = ".handin.json"
"""What the latest call wrote into the folder: hidden, because it is not handed in."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
"""Programs that print a page as PDF without a display."""

PRINT_S = 120
"""The time limit of a browser that prints, in seconds."""

TEMPLATES = Path(__file__).parent / "templates"

MODELS = ("resnet18_cifar", "resnet18", "digits_cnn")
DATA = ("cifar10", "folder", "digits")
"""The models and the data sets that the script has, each in a template."""

_IMPORT = ("import ", "from ")

_NOTEBOOK = {
    "q1": "q1",
    "table1": "table1",
    "table2": "table2",
    "table3": "table3",
    "scaling": """\
figure, axes = plt.subplots()
parallel = scaling[scaling["strategy"] != "single"].dropna(subset="speedup")
keys = ["group", "strategy", "treatment", "batch"]
for (_, strategy, _, batch), rows in parallel.groupby(keys, dropna=False):
    gpus = [rows["reference_gpus"].iloc[0], *rows["gpus"]]
    axes.plot(gpus, [1, *rows["speedup"]], "o-", label=f"{strategy}, batch {batch} per GPU")
axes.set(xlabel="GPUs", ylabel="speedup")
if len(parallel):
    axes.legend()""",
    "curves": """\
figure, axes = plt.subplots()
timed = curves[curves["role"] == "timed"]
for (strategy, gpus, batch), rows in timed.groupby(["strategy", "gpus", "batch"]):
    label = f"{strategy}, {gpus} GPUs, batch {batch} per GPU"
    axes.plot(rows["iteration"], rows["loss"], ".", label=label)
axes.set(xlabel="iteration of the timed epoch", ylabel="training loss")
axes.legend()""",
}
"""What the notebook does with a sheet, whose frame has the sheet's name."""


TO_FILL_IN = "(to be filled in)"

OWN_WORDS = "YOUR WORDS: replace this line. A program wrote what is above; the reasons are yours."
"""The place below each answer, in the text to edit."""


class Student(Value, frozen=True):
    """Name and number of who hands in."""

    name: str | None = None
    number: str | None = None

    @property
    def line(self) -> str:
        """Both in one line; what is not given is to be filled in."""
        name = " ".join((self.name or "").split()) or TO_FILL_IN
        number = " ".join((self.number or "").split()) or TO_FILL_IN
        return printable(f"Name: {name}, number: {number}")


class Written(Value, frozen=True):
    """What a call wrote: of which study, for whom, and the hashes of the editable texts by name."""

    study: str
    student: Student
    hashes: dict[str, str]


class HandIn(NamedTuple):
    """The written files, and the edited texts that were kept, as of `PlacedTexts`."""

    files: list[Path]
    kept: dict[str, str]


def write_handin(report: Report, folder: Path, given: Student) -> HandIn:
    """Write what is handed in: page, text, `files`, and a PDF where a browser prints the page.

    A text that the student edited is kept, and the new one is written beside it. A name and a
    number that are not given are those of the latest call.

    Raises:
        UsageError: the folder has files that are not of an earlier call, or another study.
        HpmlError: the folder cannot be written.
    """
    study = report.study
    earlier = _earlier(folder, study)
    name = given.name or earlier.student.name
    number = given.number or earlier.student.number
    student = Student(name, number)
    html, text, drawings = _pages(report, student)
    unedited = files(report, student)
    texts = {page.MARKDOWN: printable(text)}
    texts |= {name: unedited.pop(name) for name in EDITABLE if name in unedited}
    place = placed(folder, texts, earlier.hashes)
    contents = {page.HTML: html, **place.contents, **drawings, **unedited}
    sheets = (f"data/{name}" for name in SHEET_FILES)
    written = write(contents, folder, (PDF, *sheets, *place.unneeded), lambda _: True)
    write_whole(folder / EARLIER, encode(Written(study, student, place.hashes)))
    pdf = folder / PDF
    if print_pdf(folder / page.HTML, pdf):
        written.append(pdf)
    return HandIn(written, place.kept)


def _earlier(folder: Path, study: str) -> Written:
    """Return what the latest call wrote into a folder; nothing where that is not known.

    Raises:
        UsageError: it was another study, or the files are not of a call.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--handin {folder} is a file: name an empty or a new folder")
    earlier = read_valid(folder / EARLIER, Written)
    if earlier is None:
        is_ours = (folder / NOTEBOOK).exists()
        if folder.is_dir() and any(folder.iterdir()) and not is_ours:
            raise UsageError(
                f"--handin {folder} has other files: name an empty or a new folder"
            )
        return Written(study, Student(), {})
    if earlier.study != study:
        raise UsageError(
            f"--handin {folder} has study {earlier.study}, not {study}: name another folder"
        )
    return earlier


def _pages(report: Report, student: Student) -> tuple[str, str, dict[str, bytes]]:
    """Return the page, the same as a text to edit, and the pictures of the text by file name."""
    drawn = pictures.pictures(report)
    public = page.public_page(report, drawn)
    subtitle = (student.line, *public.subtitle)
    signed = public._replace(subtitle=subtitle, is_whole=True)
    html = html_document(signed)
    sections = tuple(map(_with_places, signed.sections))
    text = markdown_document(signed._replace(sections=sections))
    # after the page, whose figures it changes
    drawings = pictures.files(drawn.values())
    pngs = {name: file for name, file in drawings.items() if name.endswith(".png")}
    return html, text, pngs


def _with_places(section: Section) -> Section:
    """Return a section with a place for the student's words below each answer."""
    items: list[Item] = []
    for item in section.items:
        if not isinstance(item, Answers):
            items.append(item)
            continue
        for answer in item.answers:
            items += [Answers((answer,)), Paragraph(OWN_WORDS)]
    return section._replace(
        items=tuple(items), sections=tuple(map(_with_places, section.sections))
    )


def files(report: Report, student: Student) -> dict[str, str]:
    """Return the files by name, without control characters."""
    sheets = {
        name: text
        for name, text in tables(report).items()
        if isinstance(text, str) and name.endswith(".csv")
    }
    script, about = _script(report)
    commands = "\n".join(report.commands) or "# no submission is recorded"
    readme = _filled(README, study=report.study, commands=commands, script=about)
    texts = {README: f"{escaped(student.line)}\n\n{printable(readme)}"}
    if script:
        head = f"# {student.line}\n# Written by hpml_jobs {__version__}, a program.\n"
        texts[SCRIPT] = head + printable(script)
    title = f"# Study {printable(report.study)}\n\n{escaped(student.line)}"
    texts[NOTEBOOK] = _notebook(title, sheets)
    texts |= {f"data/{name}": printable(sheet) for name, sheet in sheets.items()}
    return texts


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


def _script(report: Report) -> tuple[str | None, str]:
    """Return the script, None if it can repeat no cell, and what the README says about it.

    It has the settings that most cells share.
    """
    records = _measured_records(report)
    refusals = {_refusal(record.cell) for record in records} - {""}
    lines = [
        f"{SCRIPT} does not repeat cells with {text}." for text in sorted(refusals)
    ]
    repeated = [record for record in records if not _refusal(record.cell)]
    settings = Counter(_settings(record.cell) for record in repeated).most_common()
    if not settings:
        lines = lines or [f"{SCRIPT} repeats measured cells, of which there is none."]
        return None, "\n\n".join(lines)
    kept, _ = settings[0]
    if len(settings) > 1:
        lines.append(
            f"{SCRIPT} has the settings of the cells above; other cells have others."
        )
    script = _filled(SCRIPT, study=report.study, **_with_code(dict(kept)))
    rows = [
        _cell_line(report, record)
        for record in repeated
        if _settings(record.cell) == kept
    ]
    about = _filled("script.md", rows="\n".join(rows)).rstrip()
    return script, "\n\n".join([about, *lines])


def _measured_records(report: Report) -> list[Record]:
    results = chain(*(group.cells for group in report.sources))
    return [result.record for result in results if result.measured and result.record]


def _cell_line(report: Report, record: Record) -> str:
    """Return a row of the README: the command of a cell, its epoch's time and first loss."""
    time = f"{_shown(report, record, Affected.TIME)}{record.epoch_s:.3f}"
    loss = f"{_shown(report, record, Affected.LEARNING)}{training_loss(1)(record):.6f}"
    return f"| `{_command(record.cell)}` | {time} | {loss} |"


def _shown(report: Report, record: Record, affected: Affected) -> str:
    """Return the mark of checks where one is about these numbers of a cell; else nothing."""
    is_doubtful = any(
        result.is_doubt
        for group in report.sources
        for result in group.checks.get(record.slug, ())
        if affected in result.affects
    )
    return MARK if is_doubtful else ""


def _with_code(settings: dict[str, object]) -> dict[str, object]:
    """Return the settings with the code of the model and of the data, and its imports."""
    code, imports = {}, set()
    for part in ("model", "data"):
        text = (TEMPLATES / f"{settings[part]}.template").read_text()
        lines = text.splitlines()
        code[f"{part}_code"] = "\n".join(
            line for line in lines if not line.startswith(_IMPORT)
        ).strip()
        imports |= {line for line in lines if line.startswith(_IMPORT)}
    return {**settings, **code, "imports": "\n".join(sorted(imports, reverse=True))}


def _settings(cell: Cell) -> tuple[tuple[str, object], ...]:
    """Return the values that are in the script; others are its arguments."""
    keys = ("model", "data", "classes", "image_size", "lr", "momentum", "weight_decay")
    values = {key: getattr(cell.workload, key) for key in keys}
    return (*values.items(), ("device", cell.device.value), ("threads", cell.threads))


def _refusal(cell: Cell) -> str:
    """Return the first setting that the script cannot repeat; empty if it can repeat the cell."""
    workload, strategy = cell.workload, cell.strategy
    repeatable = {
        "imported timings": cell.protocol is not Protocol.IMPORTED,
        f"workload.model={workload.model}": workload.model in MODELS,
        f"workload.data={workload.data}": workload.data in DATA,
        f"workload.loss={workload.loss}": workload.loss == Loss.CROSS_ENTROPY,
        f"workload.optimizer={workload.optimizer}": workload.optimizer == Optimizer.SGD,
        f"workload.schedule={workload.schedule}": workload.schedule is None,
        f"strategy={strategy.value} on {cell.gpus} GPUs": strategy is Strategy.SINGLE
        or (strategy is Strategy.DDP and cell.gpus > 1),
        f"nodes={cell.nodes}": cell.nodes == 1,
        f"loader={cell.loader.value}, whose images stay in memory: it needs cells with "
        "loader=workers": cell.loader is Loader.WORKERS,
        cell.treatment: not cell.treatment,
    }
    return next(
        (setting for setting, is_possible in repeatable.items() if not is_possible), ""
    )


def _command(cell: Cell) -> str:
    launcher = (
        f"torchrun --standalone --nproc-per-node={cell.gpus}"
        if cell.gpus > 1
        else "python"
    )
    limit = f" --limit {cell.workload.limit}" if cell.workload.limit else ""
    seed = f" --seed {cell.seed}" if cell.seed else ""
    data = " --data images" if DATASETS[cell.workload.data].on_disk else ""
    numbers = f"--batch {cell.batch} --workers {cell.loader_workers}"
    return f"{launcher} {SCRIPT} {numbers}{seed}{limit}{data}"


def _notebook(heading: str, sheets: dict[str, str]) -> str:
    """Return a notebook (nbformat 4.5) of a cell per sheet, which reads and shows it."""
    sources = ["import matplotlib.pyplot as plt\nimport pandas as pd"]
    sources += [
        f'{name} = pd.read_csv("data/{name}.csv")\n{code}'
        for name, code in _NOTEBOOK.items()
        if f"{name}.csv" in sheets
    ]
    title = {"cell_type": "markdown", "id": "title", "metadata": {}, "source": heading}
    cells: list[dict[str, object]] = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": f"cell-{number}",
            "metadata": {},
            "outputs": [],
            "source": source,
        }
        for number, source in enumerate(sources)
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {
        "cells": [title, *cells],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1) + "\n"


def _filled(name: str, **values: object) -> str:
    return Template((TEMPLATES / f"{name}.template").read_text()).substitute(values)
