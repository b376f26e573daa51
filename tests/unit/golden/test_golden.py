"""Every text that leaves the program for small studies is the one in tests/data/golden.

`make golden` writes the files anew: read their difference before it is committed.
"""

import difflib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from hpml_jobs import __version__
from hpml_jobs.cli.help import TOPICS
from hpml_jobs.cli.main import COMMANDS, run
from tests.unit.golden.studies import BUILT, build, table_of_runs

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "data" / "golden"
RELEASED = {
    path.name: path
    for path in sorted((ROOT / "tests" / "data").glob("studies-*/*"))
    if path.is_dir()
}
"""Studies that released versions have measured."""

OF_A_STUDY = (
    "status {}",
    "status {} --json",
    "collect {} --all",
)
OF_THE_PROGRAM = (
    "--help",
    *(f"{name} --help" for name in COMMANDS),
    *(f"help {topic}" for topic in (*TOPICS, "data wait", "nothing")),
    "plan -m gpus=1,2,4 batch=32,128 cluster=greene gpu_type=v100 workload=digits data.root=/data",
    "plan grid=lab cluster=greene gpu_type=rtx8000 workload=digits data.root=/data --all",
    "plan gpus=3 batch=0 cluster=greene workload=digits",
    "plan gpus=2 cluster=greene batchsize=3",
)
BETWEEN_STUDIES = (
    "list",
    "compare repeats slower",
    "compare repeats slower --json",
    "compare repeats slower --fail-if-slower 3%",
    "compare repeats repeats",
    "collect full min_efficiency=0.9",
    "collect full epochs=10 gpu_hours=0.05",
    "collect repeats epochs=90",
)
VOLATILE = (
    (re.compile(re.escape(__version__)), "VERSION"),
    (re.compile(re.escape(sys.executable)), "PYTHON"),
    (re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d  "), "DATE TIME         "),
    (re.compile(r"<svg.*?</svg>", re.DOTALL), "<svg/>"),
    (re.compile(r"data:[a-z/+]+;base64,[A-Za-z0-9+/=]+"), "data:"),
)
"""What is not kept: the version, this Python, and pictures, which have tests of their own."""


def said(capsys: pytest.CaptureFixture[str], command: str) -> str:
    """The output of a command, its errors and its exit code."""
    capsys.readouterr()
    code = run(shlex.split(command))
    printed = capsys.readouterr()
    errors = f"\n--- stderr\n{printed.err}" if printed.err else ""
    return f"$ hpml-jobs {command}\n{printed.out}{errors}" + (
        f"--- exit code {code}\n" if code else ""
    )


def file_name(command: str, study: str) -> str:
    """The name of the file with a command's output."""
    words = command.format("").replace("--", "").split()
    return re.sub(r"[^A-Za-z0-9=.,_-]", "_", "-".join(words))[:80] + ".txt"


OF_INSIDERS = re.compile(
    "(?i)not decided|too close to decide|no answer|cannot be used|can be used|condition group|"
    "treatment|exposed|residual|closure|rooted|skew|process-seconds|IQR|withheld"
)
"""What no first screen says: that nothing is said, and words of insiders."""

WHOLE = {"lab", "full", "quantized"}
"""Built studies of which all formats are kept; of the others text, CSV, Markdown."""

FORMATS = (".json", ".tex", ".html")


def texts_of(
    study: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, str]]:
    """Every text of a study: what commands print, and the files of its report."""
    is_whole = study in WHOLE or study in RELEASED
    for command in OF_A_STUDY:
        if not is_whole and "--json" in command:
            continue
        yield file_name(command, study), said(capsys, command.format(study))
    narrow = partial(Console, highlight=False, width=80)
    with monkeypatch.context() as patch:
        patch.setattr("hpml_jobs.cli.collect.console", narrow)
        first_screen = said(capsys, f"collect {study}")
    assert first_screen.count("\n") <= 1 + 14, first_screen
    assert not OF_INSIDERS.findall(first_screen)
    yield "collect.txt", first_screen
    folder = Path("outputs") / study / "report"
    for path in sorted(folder.iterdir()):
        if path.suffix in (".png", ".svg") or (not is_whole and path.suffix in FORMATS):
            continue
        if path.name != "report.md":  # the tables again; the page has its words
            yield f"report/{path.name}", path.read_text()


def compare(place: str, texts: dict[str, str]) -> None:
    """Compare texts with the golden files of a place, or write these."""
    folder = GOLDEN / place
    here = (re.compile(re.escape(str(Path.cwd()))), "FOLDER")
    for pattern, word in (here, *VOLATILE):
        texts = {name: pattern.sub(word, text) for name, text in texts.items()}
    if os.environ.get("GOLDEN") == "write":
        shutil.rmtree(folder, ignore_errors=True)
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return
    golden = {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert sorted(texts) == sorted(golden), place
    changes = [
        line
        for name in sorted(golden)
        for line in difflib.unified_diff(
            golden[name].splitlines(),
            texts[name].splitlines(),
            f"{place}/{name}",
            "now",
            n=1,
        )
    ]
    assert not changes, "\n".join(changes[:200])


@pytest.mark.parametrize("name", BUILT)
def test_texts_of_built_study(name, laptop, capsys, monkeypatch):
    build(name, laptop / "outputs")
    compare(name, dict(texts_of(name, capsys, monkeypatch)))


@pytest.mark.parametrize("name", RELEASED)
def test_texts_of_released_study(name, laptop, capsys, monkeypatch):
    shutil.copytree(RELEASED[name], laptop / "outputs" / name)
    for path in (laptop / "outputs").rglob("*"):
        os.utime(path, (0, 0))  # Git keeps no times
    compare(name, dict(texts_of(name, capsys, monkeypatch)))


def test_texts_of_imported_study(laptop, capsys, monkeypatch):
    Path("runs.csv").write_text(table_of_runs())
    printed = said(capsys, "import runs.csv study=imported")
    texts = dict(texts_of("imported", capsys, monkeypatch))
    compare("imported", {"import.txt": printed} | texts)


def test_texts_between_studies(laptop, capsys):
    for name in BUILT:
        build(name, laptop / "outputs")
    compare(
        "between",
        {file_name(command, ""): said(capsys, command) for command in BETWEEN_STUDIES},
    )


@pytest.mark.usefixtures("slurm")
def test_texts_of_the_program(capsys):
    """A plan has the width of this folder's path, so that blanks count as one."""
    texts = {
        file_name(command, ""): said(capsys, command) for command in OF_THE_PROGRAM
    }
    compare(
        "program", {name: re.sub(" {2,}", "  ", text) for name, text in texts.items()}
    )
