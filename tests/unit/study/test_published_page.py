"""The commands and recipes of docs/results.md: a report of published times, a history of W&B."""

import math
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.study.study import Study

DOCS = Path(__file__).parents[3] / "docs"

STEP_S = {1: 0.07, 4: 0.09}
"""Seconds of an iteration, by GPUs."""


def history(step_s):
    """A row per 50 steps of three epochs, the first slower, with 9 s of testing after each."""
    for epoch in range(3):
        began = 1e9 + epoch * (390 * step_s + 9)
        for step in range(0, 390, 50):
            seconds = step * step_s * (1.5 if epoch == 0 else 1)
            keys = ("_timestamp", "epoch", "trainer/global_step")
            values = (began + seconds, epoch, epoch * 390 + step)
            yield dict(zip(keys, values, strict=True))


def run_of_wandb(gpus):
    return SimpleNamespace(
        id=f"x{gpus}",
        config={"gpus": gpus, "batch": 128},
        scan_history=lambda keys: history(STEP_S[gpus]),
    )


WANDB = SimpleNamespace(
    Api=lambda: SimpleNamespace(runs=lambda path: [run_of_wandb(n) for n in STEP_S]),
    init=lambda **about: nullcontext(SimpleNamespace(log=dict)),
)
"""What the recipes call of wandb."""


@pytest.fixture
def page():
    return (DOCS / "results.md").read_text()


def test_a_history_of_wandb_becomes_a_table_of_runs(page, working_folder):
    (recipe,) = re.findall(r"```python\n(rows = .*?)```", page, re.DOTALL)
    assert recipe.count("\n") <= 12
    exec(recipe, {"math": math, "pd": pd, "wandb": WANDB})  # noqa: S102 - the page's own
    assert run(["import", "runs.csv", "study=lab"]) == 0
    records = [cell.read_record() for cell in Study(Path("outputs") / "lab").cells()]
    times = {record.cell.gpus: record.epoch_s for record in records}
    assert times == pytest.approx({1: 391 * 0.07, 4: 98 * 0.09})
