"""Data-quality checks in the commands record and status."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from hpml_jobs.cli import collect
from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import CellFile, Outcome
from hpml_jobs.core.check_result import Level
from hpml_jobs.report.key_numbers import as_text, key_numbers
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.study import Study
from tests.unit.builders import a_cell, a_record
from tests.unit.check_cases import (
    baseline_record,
    change_epoch,
    change_messages,
    clean_record,
    imported_record,
)
from tests.unit.study_builder import write_record

SPOILT = change_messages(count=1)(change_epoch("timed", stall_s=0.96)(clean_record()))


def write_study(*records):
    """A study of these records in the folder where studies are looked for."""
    study = Study(Path("outputs") / "mine")
    study.create()
    for record in records:
        folder = study.cell(record.slug)
        file = CellFile(cell=record.cell, data_root="", code_root="")
        write_whole(folder.cell_json, encode(file))
        write_record(folder, record)
    return study


def output_of(capsys, *words):
    assert run([*words]) == 0
    return capsys.readouterr().out


def test_status_names_failed_checks_and_the_record_command(laptop, capsys):
    """Status names the checks that did not pass and the command that gives reasons."""
    write_study(SPOILT, baseline_record())
    out = output_of(capsys, "status", "mine")
    row = next(line for line in out.splitlines() if SPOILT.slug in line)
    # loader-bound is under a table
    assert row.rstrip().endswith("1 failed check: messages")
    assert (
        "2 cells: 2 ok\nsome checks failed or warn; to see the reasons:\nhpml-jobs record mine\n"
        in out
    )


def test_status_of_clean_cells_omits_checks(laptop, capsys):
    write_study(clean_record(), baseline_record())
    out = output_of(capsys, "status", "mine")
    assert "check" not in out
    assert "warning" not in out
    assert "why" not in out


def test_status_json_has_every_check_result(laptop, capsys):
    write_study(SPOILT, baseline_record())
    cells = json.loads(output_of(capsys, "status", "mine", "--json"))["cells"]
    answer = next(state for state in cells if state["slug"] == SPOILT.slug)["checks"]
    assert {result["level"] for result in answer} == {level.value for level in Level}
    by_check = {result["check"]: result for result in answer}
    assert by_check["loader-bound"]["reason"].startswith(
        "waiting for data is 10.5 % of the epoch on rank 0 on gr001 (limit 5 %)"
    )
    assert "efficiency" in by_check  # neighbours are looked at too


def test_fractional_key_numbers_but_the_loss_have_a_unit():
    numbers = key_numbers(SPOILT)
    fractions = {name for name, value in numbers.items() if _has_fraction(value)}
    assert len(fractions) > 10
    without_unit = {
        name for name in fractions if as_text(numbers[name], name)[-1].isdigit()
    }
    assert without_unit == {"loss"}


def _has_fraction(value):
    parts = value.values() if isinstance(value, dict) else value
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        return isinstance(parts, float)
    return any(isinstance(part, float) for part in parts)


def test_record_begins_with_what_was_measured_and_what_to_do(laptop, capsys):
    write_study(SPOILT, baseline_record())
    out = output_of(capsys, "record", "mine", "ddp-*")
    title, measured, *checks, passed, pointer, command = out.splitlines()
    assert title == f"==== {SPOILT.slug}: ok"
    assert measured == "  epoch 8.000 s, 2,560 images/s, test accuracy 60 %"
    assert checks[0].startswith("  fail messages: rank 1 counted")
    assert checks[1].startswith("  warn loader-bound: waiting for data is 10.5 %")
    assert checks[1].endswith("use loader=device or faster storage")
    assert re.fullmatch(r"  \d+ checks passed", passed)
    assert pointer == "All numbers and checks:"
    assert command == "hpml-jobs record mine 'ddp-*' --all"
    lines_of_80 = sum(-(-len(line) // 70) for line in out.splitlines())
    assert lines_of_80 <= 24


def test_checks_that_are_not_explained_are_named(laptop, capsys, monkeypatch):
    monkeypatch.setattr(collect, "MOST_EXPLAINED", 1)
    write_study(SPOILT, baseline_record())
    out = output_of(capsys, "record", "mine", "ddp-*")
    assert "fail messages: " in out
    assert "loader-bound: " not in out
    assert "  more: loader-bound" in out


def test_all_of_a_record_shows_key_numbers_and_worst_checks_first(laptop, capsys):
    write_study(SPOILT, baseline_record())
    out = output_of(capsys, "record", "mine", "ddp-*", "--all")
    assert out.startswith(f"==== {SPOILT.slug}: ok\n")
    assert "single-1gpu" not in out.split("efficiency")[0]
    for words in (
        "epoch_s                8.000 s",
        "epoch_s_by_rank        7.997 s, 7.998 s, 7.999 s, 8.000 s",
        "phases                 stall 0.161 s, h2d",
        "gradient_bytes         16,738,560",
        "test_accuracy_by_rank  60 %, 60 %, 60 %, 60 %",
        "parameters_equal       yes",
        "buffers_equal          no",
    ):
        assert words in out
    levels = [
        line.split()[0]
        for line in out.splitlines()
        if ": " in line and line[2:6].strip()
    ]
    checks = [level for level in levels if level in ("fail", "warn", "pass")]
    assert checks[:2] == ["fail", "warn"]
    assert checks[2:] == ["pass"] * len(checks[2:])
    assert len(checks) > 20


def test_record_json_has_numbers_by_name(laptop, capsys):
    write_study(clean_record(), baseline_record())
    answer = json.loads(output_of(capsys, "record", "mine", "--json"))
    assert answer["study"] == "mine"
    single, ddp = answer["cells"]
    numbers = ddp["numbers"]
    assert numbers["epoch_s"] == 8.0
    assert numbers["compute_s"] + numbers["comm_exposed_s"] == pytest.approx(
        0.98 * 8.04
    )
    assert numbers["phases"]["stall"] == pytest.approx(0.02 * 8.04)
    assert single["numbers"]["comm_total_s"] is None
    assert single["numbers"]["parameters_equal"] is None


def test_record_covers_cells_without_numbers(laptop, capsys):
    oom = a_record(
        a_cell(),
        outcome=Outcome.OOM,
        reason="rank 1: out of memory",
        ranks=(),
        model=None,
    )
    study = write_study(oom, clean_record())
    study.cell(clean_record().slug).record_json.unlink()
    out = output_of(capsys, "record", "mine")
    assert f"==== {oom.slug}: oom rank 1: out of memory" in out
    assert f"==== {clean_record().slug}: no record (status shows the reason)" in out


@pytest.mark.whole
def test_record_shows_imported_timing(laptop, capsys):
    write_study(imported_record())
    out = output_of(capsys, "record", "mine", "--all")
    assert "epoch_s                10.50 s" in out
    assert "phases" not in out


def test_record_pattern_without_match_lists_cells(laptop, capsys):
    write_study(clean_record())
    assert run(["record", "mine", "dp-*"]) == 1
    error = capsys.readouterr().err
    assert (
        error
        == f"hpml-jobs: no cell of study mine matches dp-*; its cells: {clean_record().slug}\n"
    )
