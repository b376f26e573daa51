"""A printed command is copied whole: it stands on a line of its own, complete, and it works."""

import re
import shlex
import subprocess
import sys

import pytest

from hpml_jobs.cli.commands import COMMANDS
from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.text import PROGRAM
from tests.unit.builders import a_cell, lab_cell, lab_record
from tests.unit.study_builder import StudyBuilder

LONG = "data.root=/scratch/a/folder/whose/name/is/longer/than/a/line/of/a/terminal"


def with_numbers(builder):
    builder.with_published_study()


def with_failures(builder):
    builder.with_record(lab_record(lab_cell(1, 128), 27.2))
    outcomes = (
        Outcome.FAILED,
        Outcome.TIMEOUT,
        Outcome.OOM,
        Outcome.CANCELLED,
        Outcome.NODE_FAIL,
    )
    for number, outcome in enumerate(outcomes, start=1):
        builder.with_cell(a_cell(batch=2**number), outcome, "x")
        builder.sent_as(*(f"101_{n}" for n in range(len(builder.cells))))
        builder.end_attempt(2**number, f"101_{number}", outcome, reason="x")


def without_numbers(builder):
    builder.with_cell(a_cell(batch=64), Outcome.FAILED, "x").sent_as("101_0")
    builder.end_attempt(64, "101_0", Outcome.FAILED, reason="x")


STUDIES = {
    function.__name__: function
    for function in (with_numbers, with_failures, without_numbers)
}

SCREENS = ("collect", "collect --all", "status", "logs")


def study_of(folder, kind):
    builder = StudyBuilder(folder / "mine")
    STUDIES[kind](builder)
    words = f"hpml-jobs -m gpus=1,2,4 batch=32,128,512 {LONG} study=mine cluster=local device=cpu"
    builder.study.add_command(words)
    return builder


def commands_in(text):
    """The lines that are commands; no other line has one of several words in it."""
    for line in text.splitlines():
        before, program, after = line.partition(f"{PROGRAM} ")
        if not program or before == f"{PROGRAM}: ":
            continue
        assert not before.strip(), f"a command within a sentence: {line}"
        yield shlex.split(f"{program}{after}")


@pytest.mark.usefixtures("laptop")
@pytest.mark.parametrize("kind", STUDIES)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_commands_are_on_lines_of_their_own(tmp_path, capfd, monkeypatch, kind, width):
    monkeypatch.setenv("COLUMNS", str(width))
    elsewhere = tmp_path / "elsewhere of mine"
    study_of(elsewhere, kind)
    for screen in SCREENS:
        name, *options = screen.split()
        run([name, "mine", *options, "--outputs", str(elsewhere)])
    shown = capfd.readouterr()
    suggested = list(commands_in(f"{shown.out}\n{shown.err}"))
    assert suggested
    for _, *words in suggested:
        if words[0] in COMMANDS:
            assert words[1:4] == ["mine", "--outputs", str(elsewhere)]
        else:
            assert {LONG, "study=mine", f"outputs={elsewhere}"} <= {*words}


@pytest.mark.parametrize("kind", STUDIES)
def test_suggested_commands_are_no_wrong_usage(tmp_path, laptop, capfd, kind):
    study_of(tmp_path / "outputs", kind)
    run(["collect", "mine", "--outputs", str(tmp_path / "outputs")])
    run(["status", "mine", "--outputs", str(tmp_path / "outputs")])
    suggested = list(commands_in(capfd.readouterr().out))
    assert suggested
    for _, *words in suggested:
        if words[0] in {"collect", "logs", "status"}:
            assert run([word for word in words if word != "--watch"]) in (0, 1), words


def test_commands_of_a_terminal_are_left_to_it(tmp_path):
    """Rich wraps what it prints to a terminal: `script` gives one of 60 columns."""
    outputs = f"a-folder-whose-name-is-longer-{'x' * 40}"
    study_of(tmp_path / outputs, "with_failures")
    words = ["-m", "hpml_jobs", "status", "mine", "--outputs", outputs]
    command = shlex.join([sys.executable, *words])
    shown = subprocess.run(
        ["script", "-qec", f"stty cols 60; {command}", "/dev/null"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    ).stdout
    lines = [line.rstrip("\r") for line in shown.splitlines()]
    assert any(outputs in line and line.strip().startswith(PROGRAM) for line in lines)


def test_commands_of_a_page_are_code(tmp_path, laptop, capfd):
    folder = study_of(tmp_path / "outputs", "with_failures").study.report
    assert run(["collect", "mine", "--outputs", str(tmp_path / "outputs")]) == 0
    capfd.readouterr()
    page = (folder / "report.html").read_text()
    commands = re.findall('<br><code class="command">(.*?)</code>', page)
    assert commands and all(LONG in shlex.split(command) for command in commands)
    for command in commands:
        assert f":  \n`{command}`" in (folder / "report.md").read_text()
