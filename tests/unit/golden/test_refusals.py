"""What each wrong command line is refused with is the text in tests/data/golden/refusals.

Notices before the refusal are in it too. `make golden` writes the files anew.
"""

import difflib
import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.study.files import write_whole
from tests.unit.builders import a_cell
from tests.unit.golden.refused_commands import OF_COMMANDS
from tests.unit.golden.refused_files import (
    FILES,
    OF_DEFAULTS,
    OF_FILES,
    OF_SITE,
    OF_TIMINGS,
)
from tests.unit.golden.refused_keys import OF_KEYS
from tests.unit.golden.studies import build
from tests.unit.golden.test_golden import GOLDEN, ROOT, VOLATILE
from tests.unit.study_builder import StudyBuilder

DEFAULTS = "cluster: {cluster}\nworkload: digits\n"
"""The user's configuration file, with which commands are short."""

SHOWN_CHARACTERS = 200
"""The beginning of a refused file that the golden text shows."""


def refusal(capsys: pytest.CaptureFixture[str], command: str) -> str:
    """Return a command, what it prints to stderr, and its exit code."""
    capsys.readouterr()
    code = run(shlex.split(command))
    printed = capsys.readouterr().err
    assert code in (1, 2), f"not refused: {command}\n{printed}"
    return f"$ hpml-jobs {command}\n{printed}exit code {code}\n"


def refusals_of_commands(
    capsys: pytest.CaptureFixture[str], commands: Mapping[str, str]
) -> str:
    """Return the refusals of commands, which are lines below headings."""
    parts = []
    for heading, lines in commands.items():
        parts.append(f"==== {heading} ====\n")
        parts += [refusal(capsys, line.strip()) for line in lines.strip().splitlines()]
    return "\n".join(parts)


def refusals_of_file(
    capsys: pytest.CaptureFixture[str],
    path: Path,
    command: str,
    contents: Iterable[str],
) -> str:
    """Return the refusals of one command, each below the content that a file had."""
    parts = []
    for content in contents:
        path.write_text(content, errors="surrogateescape")
        begin = f"{path.name}: {content[:SHOWN_CHARACTERS]!r}\n"
        parts.append(begin + refusal(capsys, command))
    return "\n".join(parts)


def compare(name: str, text: str) -> None:
    """Compare a text with a golden file, or write the file."""
    path = GOLDEN / "refusals" / f"{name}.txt"
    for folder, word in (
        (Path.cwd(), "FOLDER"),
        (Path.cwd().parent, "HOME"),
        (ROOT, "ROOT"),
    ):
        text = text.replace(str(folder), word)
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    if os.environ.get("GOLDEN") == "write":
        write_whole(path, text.encode())
        return
    golden, now = path.read_text().splitlines(), text.splitlines()
    changes = list(difflib.unified_diff(golden, now, path.name, "now", n=3))
    assert not changes, "\n".join(changes[:200])


@pytest.mark.usefixtures("composed_once")
def test_refused_keys(slurm, working_folder, user_config_file, capsys):
    user_config_file.write_text(DEFAULTS.format(cluster="greene"))
    compare("keys", refusals_of_commands(capsys, OF_KEYS))
    assert slurm.scripts == []
    assert list(working_folder.iterdir()) == []


@pytest.mark.usefixtures("composed_once")
def test_refused_files(laptop, user_config_file, site_config_file, monkeypatch, capsys):
    # no note on few CPUs
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    for name, content in FILES.items():
        write_whole(laptop / name, content.encode())
    user_config_file.write_text(DEFAULTS.format(cluster="local"))
    text = refusals_of_commands(capsys, OF_FILES)
    of_defaults = refusals_of_file(capsys, user_config_file, "plan gpus=1", OF_DEFAULTS)
    user_config_file.unlink()
    of_site = refusals_of_file(capsys, site_config_file, "plan gpus=1", OF_SITE)
    monkeypatch.setenv("HPML_JOBS_SITE_CONFIG", "/no/such/file.yaml")
    of_variable = refusal(capsys, "plan gpus=1")
    parts = [text, "==== The user's defaults ====\n", of_defaults]
    compare(
        "files",
        "\n".join([*parts, "==== The site's defaults ====\n", of_site, of_variable]),
    )
    assert not (laptop / "outputs").exists()


@pytest.fixture
def studies(laptop):
    """Studies, of which some cannot be read or have no cell, and files that are in the way."""
    outputs = laptop / "outputs"
    for name in ("full", "repeats", "lab"):
        build(name, outputs)
    for name in ("newer", "damaged", "empty"):
        StudyBuilder(outputs / name)
    StudyBuilder(outputs / "failed").with_cell(a_cell(), Outcome.FAILED)
    (outputs / "newer" / "study.json").write_text('{"schema": 7, "hpml_jobs": "9.9"}')
    (outputs / "damaged" / "study.json").write_text("{}")
    (laptop / "file").write_text("")
    (laptop / "file.json").write_text("{}")
    (laptop / "full.csv").write_text("run,gpus,batch,epoch_s\na,1,32,48.612\n")
    (laptop / "full-of-files").mkdir()
    (laptop / "full-of-files" / "report.md").write_text("mine")


@pytest.mark.usefixtures("studies")
def test_refused_commands(capsys):
    compare("commands", refusals_of_commands(capsys, OF_COMMANDS))


def test_refused_timings(laptop, capsys):
    command = "import lab.csv study=new"
    compare("timings", refusals_of_file(capsys, Path("lab.csv"), command, OF_TIMINGS))
    assert [path.name for path in laptop.iterdir()] == ["lab.csv"]
