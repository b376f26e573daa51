"""Lines that name no command: each is refused in one line, and nothing is written.

What is said is in tests/data/golden/refusals/commands.txt.
"""

import pytest
from hpml_jobs.cli.guesses import MEANT

from hpml_jobs.cli.commands import COMMANDS, REPLACED
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
    assert (
        first in COMMANDS
        or first.startswith("-")
        or "=" in first
        or first in ("help", "tar")
    )
    assert first != "help" or rest[0] in (*TOPICS, "strategy")


def test_a_study_that_is_named_alone_gets_a_command(working_folder, capsys):
    StudyBuilder(working_folder / "outputs" / "results")
    assert run(["results"]) == 2
    assert "results is a study; did you mean status results?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("stop", "cancel, or stop=VALUE"),
        *(("view", "collect"), ("top", "status"), ("info", "status")),
        *(("scale", "submit KEY=VALUE..."), ("bench", "submit KEY=VALUE...")),
        *(("delete", "remove"), ("test", "doctor"), ("statsu", "status")),
    ],
)
def test_a_word_of_another_tool_gets_the_command_that_is_meant(word, meant, capsys):
    assert run([word, "mine"]) == 2
    assert f"{word} is not a command; did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["collect", "‘mine’"], "‘mine’ has the quotes of a text document: write mine"),
        (["collect", "study=“mine”"], "of a text document: write study=mine"),
        (
            ["compare", "my–study", "b"],
            "has the dash of a text document: write my-study",
        ),
        (["logs", "mine", "ddp‑2*"], "has the dash of a text document: write 'ddp-2*'"),
        (["status\u00a0mine"], "has a non-breaking space: write status mine"),
        (["batch=32\u200b"], "has an invisible character: write batch=32"),
        (["-m", "gpus=“1,2”"], "of a text document: write gpus=1,2"),
        (["script=“train.py”"], "of a text document: write script=train.py"),
        (["cluster.time=2h"], "unknown key cluster.time; did you mean minutes?"),
        (["gpus=1–4"], "gpus='1–4': a whole number is needed"),
    ],
)
def test_characters_of_a_text_document_are_named(words, message, laptop, capsys):
    assert run(words) == 2
    assert message in capsys.readouterr().err


def test_texts_and_files_may_have_any_characters(laptop, capsys):
    (laptop / "a–b.csv").write_text("")
    for words in (["import", "a–b.csv"], ["report", "--name", "Ada–Zoë"], ["args=‘x’"]):
        assert run(words) != 0
        assert "text document" not in capsys.readouterr().err


def test_help_is_a_command_that_is_guessed(capsys):
    assert run(["helpp"]) == 2
    assert "did you mean help?" in capsys.readouterr().err


def test_a_command_that_is_a_value_is_not_refused(laptop, capsys):
    (laptop / "plan").mkdir()
    assert run(["--config-dir", "plan", "workload=digits", "-n"]) == 0
