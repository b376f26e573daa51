"""The report folder and the screen: every form says the same, again and again the same bytes."""

import io

import pandas as pd
import pytest
from rich.console import Console

import hpml_jobs
from hpml_jobs.core.errors import UsageError
from hpml_jobs.lab.questions import section
from hpml_jobs.report.files.screen import show_all
from hpml_jobs.report.folder import write_all
from tests.unit.builders import lab_cell, lab_record
from tests.unit.study_builder import write_tables

FILES = [
    "tables.tex",
    "tables.json",
    "q1.csv",
    "table1.csv",
    "table2.csv",
    "table3.csv",
    "choice.csv",
    "gap.csv",
    "scaling.csv",
    "communication.csv",
    "phases.csv",
    "replicas.csv",
    "checks.csv",
    "messages.csv",
    "cells.csv",
]
OF_EVERY_STUDY = {"q1.csv", "table1.csv", "table2.csv", "table3.csv", "cells.csv"}


def screen_text(report, width):
    console = Console(width=width, file=io.StringIO())
    show_all(report, console)
    return console.file.getvalue()


def test_collect_twice_writes_identical_bytes(incomplete_study):
    folder = incomplete_study.study.report
    paths = write_tables(incomplete_study.collect(), folder)
    assert [path.name for path in paths] == FILES
    first = [path.read_bytes() for path in paths]
    assert [
        path.read_bytes() for path in write_tables(incomplete_study.collect(), folder)
    ] == first
    assert {path.name for path in folder.iterdir()} == set(FILES)


@pytest.mark.parametrize("width", [60, 140])
def test_screen_lines_fit_console_width(incomplete_study, width):
    for batch in (8, 16, 64, 256):
        for gpus in (1, 2, 4):
            incomplete_study.with_record(
                lab_record(lab_cell(gpus, batch), 100.0 / gpus)
            )
    text = screen_text(incomplete_study.collect(), width)
    assert max(map(len, text.splitlines())) <= width
    heads = "".join(line for line in text.splitlines() if "│" in line)
    for batch in (8, 16, 32, 64, 128, 256, 512):
        assert heads.count(f"batch {batch} per GPU") == 5


@pytest.mark.parametrize("name", ["table1.csv", "tables.tex", "tables.json"])
def test_named_folder_keeps_tables_of_its_owner(builder, tmp_path, name):
    builder.with_published_study()
    folder = tmp_path / "to"
    folder.mkdir()
    (folder / name).write_bytes(b"mine")
    with pytest.raises(UsageError, match=f"{name} would be written over"):
        write_tables(builder.collect(), folder)
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [
        (name, b"mine")
    ]


@pytest.mark.parametrize(
    "name", ["bandwidth.png", "phases.png", "report.html", "report.md"]
)
def test_named_folder_keeps_pictures_of_its_owner(builder, tmp_path, name):
    builder.with_published_study()
    folder = tmp_path / "to"
    write_tables(builder.collect(), folder)
    (folder / name).write_bytes(b"mine")
    if name != "bandwidth.png":  # of this study there is no such picture
        with pytest.raises(UsageError, match=f"{name} would be written over"):
            write_all(builder.collect(), folder, section, has_all=True)
    else:
        write_all(builder.collect(), folder, section, has_all=True)
    write_tables(builder.collect(), folder)
    assert (folder / name).read_bytes() == b"mine"


def test_report_is_written_again_beside_files_of_others(builder, tmp_path):
    builder.with_published_study()
    (tmp_path / "thesis.tex").write_bytes(b"mine")
    write_all(builder.collect(), tmp_path, section, has_all=True)
    assert (tmp_path / "scaling.csv").exists()
    builder.with_record(lab_record(lab_cell(2, 32, repeat=1), 30.0))
    write_all(builder.collect(), tmp_path, section, has_all=False)
    assert {path.name for path in tmp_path.glob("*.csv")} == OF_EVERY_STUDY
    assert (tmp_path / "thesis.tex").read_bytes() == b"mine"


def test_tables_in_python_are_those_of_the_files(incomplete_study):
    folder = incomplete_study.study.root
    write_tables(incomplete_study.collect(), incomplete_study.study.report)
    tables = hpml_jobs.tables(str(folder))
    files = {path.stem for path in (folder / "report").glob("*.csv")}
    assert files == {label for label, frame in tables.items() if len(frame.columns)}
    for label in ("table1", "gap", "scaling"):
        table = pd.read_csv(
            folder / "report" / f"{label}.csv", dtype={"treatment": str}
        )
        assert table.columns.tolist() == tables[label].columns.tolist()
        assert len(table) == len(tables[label])
    words = tables["table1"].attrs
    assert words["title"] == ["Table 1: time and speedup, ddp"]
    assert any("out of memory" in note for note in words["notes"])
