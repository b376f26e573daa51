"""docs/commands.md has every command and every option that the program's own help names."""

import re
from pathlib import Path

import pytest

from hpml_jobs.cli.commands import COMMANDS
from hpml_jobs.cli.help import keys
from hpml_jobs.cli.main import run
from hpml_jobs.core.paths import conf_folder

PAGE = (Path(__file__).parents[3] / "docs" / "commands.md").read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_page_has_every_option_of_command(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run([command, "--help"]) == 0
    _, _, options = capsys.readouterr().out.partition("Options:")
    names = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", options.split("Example:")[0]))
    documented = re.search(rf"^## {command}\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    assert documented is not None
    assert {"--help"} < names
    table = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", documented[1]))
    assert names - {"--help", "-h"} <= table


def test_page_explains_common_options_once():
    common = re.search(r"^## Common.*?\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    assert common is not None
    explained = re.findall(r"^\| `(-[^|`]*?)(?: [A-Z]+)?` \|", common[1], re.MULTILINE)
    assert "--json" in explained
    lines = re.findall(r"^Common options: (.*?)\.$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(lines) > 10
    for line in lines:
        assert {*re.findall(r"`([^`]*)`", line)} <= {*explained}


def test_page_has_every_key_of_a_study():
    docs = keys((conf_folder() / "config.yaml").read_text())
    assert [doc.key for doc in docs if f"| `{doc.key}` |" not in PAGE] == []
