"""Command grade: edited, impossible and missing numbers of students' studies."""

import csv
import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from tests.unit.study_builder import StudyBuilder

RELEASED = Path(__file__).parents[2] / "data" / "studies-0.4.0" / "local-040"


@pytest.fixture
def lab(laptop, capsys):
    """A released study of a student, with its tables."""
    folder = Path("course/ada/lab")
    shutil.copytree(RELEASED, folder)
    assert run(["collect", str(folder)]) == 0
    capsys.readouterr()
    return folder


def grades(capsys, *words):
    assert run(["grade", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)["grades"]


def rules(capsys, *words):
    """Return the rules of the findings of one study with their texts, without missing cells."""
    (grade,) = grades(capsys, *words)
    return [
        (one["rule"], f"{one['place']}: {one['text']}")
        for one in grade["findings"]
        if one["rule"] != "missing"
    ]


def import_rows(capsys, *rows):
    Path("times.csv").write_text("\n".join(rows))
    assert run(["import", "times.csv", "study=times", "images=50000", "--outputs", "bob"]) == 0
    capsys.readouterr()


def edit(path, pattern, replacement):
    text, count = re.subn(pattern, replacement, path.read_text(), count=1)
    assert count == 1
    path.write_text(text)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_honest_study_has_no_finding_but_missing_cells_and_is_not_changed(lab, capsys):
    before = contents(lab)
    (grade,) = grades(capsys, "course/ada")
    assert (grade["student"], grade["study"]) == ("ada", "lab")
    assert (grade["ok"], grade["cells"], grade["gpus"]) == (2, 9, 2)
    assert [one["rule"] for one in grade["findings"]] == ["missing"]
    assert contents(lab) == before


def test_complete_lab_has_no_finding_and_strict_passes(laptop, capsys):
    StudyBuilder(Path("ada/lab")).with_published_study()
    assert run(["grade", "--strict", "ada"]) == 0
    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert re.fullmatch(r"ada +lab +9 of 9 +1\.7\d on 4, b512 +none *", line)


def test_record_with_edited_time_is_found(lab, capsys):
    path = next(lab.glob("cells/*/record.json"))
    edit(path, r'("role": "timed",[^}]*?"epoch_s": )[\d.]+', r"\g<1>0.001")
    (rule, text), *_ = rules(capsys, str(lab))
    assert rule == "record"
    assert path.parent.name in text


def test_time_that_contradicts_the_iterations_is_found(lab, capsys):
    (path,) = lab.glob("cells/ddp-2proc-b32-digits-c2be11/record.json")
    edit(path, r'("role": "timed",\s+"epoch_s": )[\d.]+', r"\g<1>0.2")
    assert any(
        rule == "record" and "the iterations of rank 0 take" in text and "says 0.2 s" in text
        for rule, text in rules(capsys, str(lab))
    )


def test_edited_cell_of_csv_and_json_is_found(lab, capsys):
    rows = list(csv.reader((lab / "report" / "table1.csv").read_text().splitlines()))
    column = next(i for i, name in enumerate(rows[0]) if name.endswith("_speedup"))
    line = next(n for n, row in enumerate(rows) if n and row[column])
    true, rows[line][column] = rows[line][column], "9.75"
    with (lab / "report" / "table1.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    edit(lab / "report" / "tables.json", r'("epoch_s": )[\d.]+', r"\g<1>0.5")
    json_file, sheet = rules(capsys, str(lab))
    place = f"report/table1.csv: line {line + 1} {rows[0][column]}"
    assert sheet[1].startswith(f"{place} is 9.75, the records give {true}")
    assert "is 0.5, the records give" in json_file[1]
    (lab / "report" / "tables.json").write_text("{")
    assert "it cannot be read" in rules(capsys, str(lab))[0][1]


def test_archive_is_graded_and_a_changed_byte_is_found(lab, capsys):
    assert run(["archive", str(lab), "--to", "eve.tar.gz"]) == 0
    capsys.readouterr()
    assert rules(capsys, "eve.tar.gz") == []
    content = gzip.decompress(Path("eve.tar.gz").read_bytes())
    changed = content.replace(b'"epoch_s": ', b'"epoch_s":9', 1)
    Path("eve.tar.gz").write_bytes(gzip.compress(changed))
    (grade,) = grades(capsys, "eve.tar.gz")
    assert grade["student"] == "eve"
    assert "changed after it was packed (SHA-256)" in grade["findings"][0]["text"]


def test_speedup_above_n_and_communication_above_the_epoch_are_found(laptop, capsys):
    import_rows(capsys, "gpus,batch,epoch_s,comm_s", "1,128,40,", "4,128,8,9")
    texts = [text for _, text in rules(capsys, "bob")]
    assert any("efficiency is 1.25" in text for text in texts)
    assert any("comm_s is 9 s of an epoch of 8 s" in text for text in texts)


def test_bytes_of_the_data_set_as_gradients_are_found(laptop, capsys):
    rows = ["gpus,batch,epoch_s,parameters", "1,128,40,38400000", "4,128,12,38400000"]
    import_rows(capsys, *rows)
    assert {rule for rule, _ in rules(capsys, "bob")} == {"gradients"}


def test_tables_against_the_smallest_size_are_not_edited(laptop, capsys):
    import_rows(capsys, "gpus,batch,epoch_s", "2,128,40", "4,128,24")
    assert run(["collect", "bob/times", "baseline=smallest"]) == 0
    capsys.readouterr()
    assert rules(capsys, "bob") == []


def test_csv_has_every_finding_and_strict_fails(lab, capsys):
    Path("course/eve").mkdir()
    (lab / "study.json").write_text("{}")
    words = ["grade", "course/ada", "course/eve", "--csv", "findings.csv", "--strict"]
    assert run(words) == 1
    capsys.readouterr()
    first, second = csv.DictReader(Path("findings.csv").read_text().splitlines())
    assert (first["student"], first["rule"]) == ("ada", "record")
    assert "has no schema number" in first["finding"]
    assert (second["student"], second["finding"]) == ("eve", "no study in course/eve")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere is not a folder"),
        (["course", "--csv", "no/f.csv"], "no/f.csv cannot be written"),
    ],
)
def test_bad_words_are_refused_in_one_line(words, message, lab, capsys):
    assert run(["grade", *words]) == 1
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1
