"""Lines that name no command: each is refused in one line, and nothing is written.

What is said is in tests/data/golden/refusals/commands.txt.
"""

import pytest

from hpml_jobs.cli.commands import COMMANDS, REPLACED
from hpml_jobs.cli.guesses import MEANT
from hpml_jobs.cli.help import TOPICS
from hpml_jobs.cli.main import run
from tests.unit.study_builder import StudyBuilder

pytestmark = pytest.mark.whole


@pytest.mark.parametrize(
    "word", [*MEANT, "−m", "gpus=‘1,2’", "train.py", "lab", "--status"]
)
def test_a_wrong_word_is_refused_in_one_line(word, working_folder, capsys):
    assert run([word]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(working_folder.iterdir()) == []


def test_words_of_other_tools_are_none_of_ours():
    assert not {*MEANT} & {*COMMANDS}
    assert {*REPLACED} <= {*MEANT}


@pytest.mark.parametrize("meant", dict.fromkeys(MEANT.values()))
def test_what_is_meant_is_a_command_or_begins_a_submission(meant):
    first, *rest = meant.split()
    assert first in COMMANDS or first.startswith("-") or "=" in first or first == "help"
    assert first != "help" or rest[0] in (*TOPICS, "strategy")


def test_a_study_that_is_named_alone_gets_a_command(working_folder, capsys):
    StudyBuilder(working_folder / "outputs" / "results")
    assert run(["results"]) == 2
    assert "results is a study; did you mean status results?" in capsys.readouterr().err


def test_help_is_a_command_that_is_guessed(capsys):
    assert run(["helpp"]) == 2
    assert "did you mean help?" in capsys.readouterr().err


def test_a_command_that_is_a_value_is_not_refused(laptop, capsys):
    (laptop / "plan").mkdir()
    assert run(["--config-dir", "plan", "workload=digits", "-n"]) == 0
