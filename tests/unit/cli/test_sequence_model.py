"""The transformer of docs/own_code.md, without a test set, from submission to report."""

import csv
import json
import re
import shlex
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "own_code.md").read_text()
CODE = next(
    c
    for c in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    if "clipped_adamw" in c
)
(COMMAND,) = re.findall(r"```\n(python -m hpml_jobs .*?)```", PAGE, re.DOTALL)

NO_TEST_SET = """
def train_only(train: bool, context: int):
    return dataset(train, context) if train else None
"""

CHANGES = {
    "workload.data": "mygpt:train_only",
    "workload.name": "gpt",
    "+workload.args.width": "16",
    **{
        "gpus": "1",
        "batch": "8",
        "data.limit": "160",
        "epochs": "3",
        "evaluate": "true",
    },
    **{"cluster": "local", "device": "cpu", "loader_workers": "0", "protocol": "lab"},
    "study": "gpt",
}
"""Keys of the page's command that a short test changes, and those that it adds."""


def command():
    """The words of the page's command with these changes."""
    words = shlex.split(COMMAND.replace("\\\n", ""))
    keys = dict(word.split("=", 1) for word in words if "=" in word)
    assert keys["+workload.args.width"] == "64,128"
    return [f"{key}={value}" for key, value in (keys | CHANGES).items()]


def test_sequences_without_test_set_are_trained_and_collected(program):
    (program.folder / "mygpt.py").write_text(CODE + NO_TEST_SET)
    program.ok(*command())
    shown = program.ok("collect", "gpt", "--all")
    shown = " ".join(shown.split())
    assert "mygpt:train_only, 160 samples of 64 tokens per epoch" in shown
    assert (
        "optimizer mygpt:clipped_adamw, schedule mygpt:warmup_decay; width 16;" in shown
    )
    assert "images" not in shown
    report = program.folder / "outputs" / "gpt" / "report"
    for name in ("report.md", "tables.json", "cells.csv"):
        assert (report / name).stat().st_size
    with (report / "cells.csv").open() as file:
        assert {
            row["workload_code"].partition(":")[0] for row in csv.DictReader(file)
        } == {"mygpt.py"}
    (folder,) = (program.folder / "outputs" / "gpt" / "cells").iterdir()
    assert "-b8-gpt-clipped_adamw-warmup_decay-width16-" in folder.name
    (rank,) = json.loads((folder / "record.json").read_bytes())["ranks"]
    rates = [epoch["lr"] for epoch in rank["epochs"]]
    assert [rates[0][0], rates[-1][1]] == pytest.approx([0.001 / 21, 0.001 / 40])
