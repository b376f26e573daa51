"""Lines that name no command: each is refused in one line, and nothing is written.

What is said is in tests/data/golden/refusals/commands.txt.
"""

import pytest

from hpml_jobs.cli.commands import COMMANDS, GONE
from hpml_jobs.cli.main import run


@pytest.mark.parametrize("word", [*GONE, "train.py", "lab", "--status", "statsu"])
def test_a_wrong_word_is_refused_in_one_line(word, working_folder, capsys):
    assert run([word]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(working_folder.iterdir()) == []


def test_a_command_that_is_gone_says_what_to_type(capsys):
    assert not {*GONE} & {*COMMANDS}
    for word, instead in GONE.items():
        assert run([word, "mine"]) == 2
        assert f"{word} is not a command any more: {instead}" in capsys.readouterr().err


def test_a_command_that_is_a_value_is_not_refused(laptop, capsys):
    (laptop / "plan").mkdir()
    assert run(["--config-dir", "plan", "workload=digits", "-n"]) == 0


@pytest.mark.parametrize("word", ["batch", "loader", "page", "run", "unexplained"])
def test_help_explains_the_nouns_of_the_first_screens(word, capsys):
    assert run(["help", word]) == 0
    title, text, *_ = capsys.readouterr().out.splitlines()
    assert word in title.replace(",", "").split()
    assert text.startswith("  ")
