"""Lines that name no command: each is refused in one line, and nothing is written.

What is said is in tests/data/golden/refusals/commands.txt.
"""

import pytest

from hpml_jobs.cli.main import run


@pytest.mark.parametrize("word", ["train.py", "statsu"])
def test_a_wrong_word_is_refused_in_one_line(word, working_folder, capsys):
    assert run([word]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(working_folder.iterdir()) == []


def test_a_command_that_is_a_value_is_not_refused(laptop, capsys):
    (laptop / "plan").mkdir()
    assert run(["--config-dir", "plan", "workload=digits", "-n"]) == 0
