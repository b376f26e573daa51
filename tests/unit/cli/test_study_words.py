"""The words `[STUDY] [KEY=VALUE]...` of collect."""

from pathlib import Path

from hpml_jobs.cli.main import run
from hpml_jobs.cli.options import parse_words
from tests.unit.builders import a_cell, a_record
from tests.unit.study_builder import StudyBuilder


def test_words_in_any_order_give_study_and_values():
    words = ["min_efficiency=0.5", "mine", "epochs=3"]
    values = {"min_efficiency": 0.5, "epochs": 3}
    assert parse_words(words) == ("mine", values)
    assert parse_words([]) == (None, {})
    assert parse_words(["study=mine"]) == ("study=mine", {})


def test_collect_compares_with_the_smallest_size(laptop, capsys):
    builder = StudyBuilder(Path("outputs") / "mine")
    for gpus, epoch_s in ((2, 8.0), (4, 5.0)):
        builder.with_record(
            a_record(a_cell(gpus=gpus, batch=128), f"10{gpus}_0.r0", epoch_s)
        )
    assert run(["collect", "mine"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "2 -> 4 GPUs: !1.60 times as fast at batch 128" in out
    assert "baseline=smallest compares" not in out
