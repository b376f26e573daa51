"""The words `[STUDY] [KEY=VALUE]...` of collect."""

from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.cli.options import REPORT_KEYS, number, parse_words, whole_number
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.strategies import Baseline
from tests.unit.builders import a_cell, a_record
from tests.unit.study_builder import StudyBuilder

KEYS = {"share": number, "epochs": whole_number, **REPORT_KEYS}


def test_words_in_any_order_give_study_and_values():
    words = ["share=0.5", "mine", "baseline=smallest", "epochs=3"]
    values = {"share": 0.5, "baseline": Baseline.SMALLEST, "epochs": 3}
    assert parse_words("collect", words, KEYS) == ("mine", values)
    assert parse_words("collect", None, KEYS) == (None, {})
    assert parse_words("collect", ["study=mine"], KEYS) == ("study=mine", {})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "baseline=smalest",
            "baseline=smalest: choose one of single, smallest; did you mean sma",
        ),
        ("baseline=", "baseline: write baseline=VALUE"),
        (
            "basline=single",
            "basline=single: collect has the keys share, epochs, min_efficiency, gpu_hours, basel",
        ),
        ("epochs=1 epochs=2", "epochs=2: epochs is given twice"),
        ("epochs=2.5", "epochs=2.5: must be a whole number"),
        ("share=x", "share=x: must be a number"),
        ("mine yours", "mine yours: collect is for one study"),
    ],
)
def test_bad_words_are_refused_with_the_reason(words, message):
    with pytest.raises(UsageError) as fault:
        parse_words("collect", words.split(), KEYS)
    assert message in str(fault.value)


def test_collect_compares_with_the_smallest_size(laptop, capsys):
    builder = StudyBuilder(Path("outputs") / "mine")
    for gpus, epoch_s in ((2, 8.0), (4, 5.0)):
        builder.with_record(
            a_record(a_cell(gpus=gpus, batch=128), f"10{gpus}_0.r0", epoch_s)
        )
    assert run(["collect", "mine", "baseline=other"]) == 2
    assert "baseline=other: choose one of single, smallest" in capsys.readouterr().err
    assert run(["collect", "mine", "baseline=smallest"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "!1.60 times as fast as 2 GPUs" in out
    assert "baseline=smallest compares" not in out


def test_commands_that_collect_suggests_find_the_study(laptop, capsys):
    StudyBuilder(Path("elsewhere") / "mine").with_record(
        a_record(a_cell(gpus=1), "101_0.r0", 8.0)
    )
    assert run(["collect", "mine", "--outputs", "elsewhere"]) == 0
    assert "elsewhere/mine/report/report.html" in capsys.readouterr().out
