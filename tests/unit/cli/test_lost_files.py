"""Deleted folders and records stay visible, and come back from what is left of them."""

import json
import shutil

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.validation import decode
from hpml_jobs.study.files import encode, write_whole
from tests.unit.builders import a_record
from tests.unit.slurm_output import sacct_line
from tests.unit.study_builder import StudyBuilder

GREENE = ("cluster=greene", "gpu_type=v100", "workload=digits", "gpus=4", "study=mine")


def answer(capsys, *words):
    """The JSON that a command prints."""
    assert run([*words, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def cells(capsys, command="status"):
    return {cell["slug"]: cell for cell in answer(capsys, command, "mine")["cells"]}


# ---- folders ----


@pytest.fixture
def sent(slurm, working_folder, capsys):
    """Three cells, submitted as one array; the folder of the second is deleted."""
    assert run(["-m", "batch=32,64,128", *GREENE]) == 0, capsys.readouterr().err
    capsys.readouterr()
    study = working_folder / "outputs" / "mine"
    (lost,) = study.glob("cells/*b64*")
    return study, lost


def finish(slurm, study, capsys):
    """Let SLURM say that all jobs of the study have ended."""
    jobs = [cell["job"] for cell in cells(capsys).values()]
    slurm.set_output("squeue")
    slurm.set_output("sacct", "".join(sacct_line(job, "FAILED") for job in jobs))


def test_cell_without_folder_is_missing_and_restored(sent, slurm, capsys):
    study, lost = sent
    finish(slurm, study, capsys)
    content = json.loads((lost / "cell.json").read_bytes())
    shutil.rmtree(lost)
    states = cells(capsys)
    assert len(states) == 3
    assert states[lost.name]["outcome"] == "missing"
    assert states[lost.name]["reason"].startswith(
        "the folder of this cell is gone; the manifest"
    )
    assert run(["collect", "mine"]) == 0
    capsys.readouterr()
    assert (
        "the folder of this cell is gone"
        in (study / "report" / "report.md").read_text()
    )
    assert run(["resubmit", "mine", "--missing"]) == 0
    assert "submitted 1 cell as 1 job" in capsys.readouterr().out
    assert json.loads((lost / "cell.json").read_bytes()) == content
    assert len(slurm.scripts) == 2


def test_damaged_cell_file_is_restored_from_the_manifest(sent, slurm, capsys):
    study, lost = sent
    finish(slurm, study, capsys)
    (lost / "cell.json").write_text('{"batch": 32')
    assert run(["resubmit", "mine", "--failed", lost.name]) == 0, (
        capsys.readouterr().err
    )
    assert "submitted 1 cell" in capsys.readouterr().out
    assert json.loads((lost / "cell.json").read_bytes())["cell"]["batch"] == 64


def test_damaged_manifest_lines_are_skipped(sent, slurm, capsys):
    """Names that lead out of the study, and other jobs than cells."""
    study, _ = sent
    before = cells(capsys)
    first, *_ = (study / "manifest.jsonl").read_text().splitlines()
    outside = json.loads(first) | {"cells": ["../../x"], "files": {}}
    unequal = json.loads(first) | {"happening": "sent", "jobs": ["7"], "files": {}}
    with (study / "manifest.jsonl").open("a") as file:
        file.write(json.dumps(outside) + "\n" + json.dumps(unequal) + "\n[[[\n\xff\n")
    assert cells(capsys).keys() == before.keys()


# ---- records ----


@pytest.fixture
def builder(slurm, working_folder):
    """Two measured cells, as attempts that still hold their records; one has lost its own."""
    builder = StudyBuilder(working_folder / "outputs" / "mine").with_batches(32, 64)
    builder.sent_as("17_0", "17_1")
    for batch, job in ((32, "17_0"), (64, "17_1")):
        builder.end_attempt(batch, job, Outcome.OK)
        folder = builder.folder(batch)
        copy = folder.attempt(f"{job}.r0").record
        copy.write_bytes(folder.record_json.read_bytes())
    slurm.set_output(
        "sacct", sacct_line("17_0", "COMPLETED") + sacct_line("17_1", "COMPLETED")
    )
    builder.folder(64).record_json.unlink()
    return builder


LOST = "record.json is lost, the record of attempt 17_1.r0 is used"


def test_lost_record_is_restored_by_collect(builder, capsys):
    folder = builder.folder(64)
    state = cells(capsys)[folder.slug]
    assert (state["outcome"], state["warning"]) == ("ok", LOST)
    assert not folder.record_json.exists()  # status only reads
    assert run(["collect", "mine"]) == 0
    capsys.readouterr()
    assert LOST in (builder.study.report / "report.md").read_text().replace("\\", "")
    copy = folder.attempt("17_1.r0").record
    assert folder.record_json.read_bytes() == copy.read_bytes()
    assert cells(capsys)[folder.slug]["warning"] == ""


def test_lost_record_is_not_measured_again(builder, slurm, capsys):
    write_whole(builder.study.cluster, b"")
    assert run(["resubmit", "mine", builder.folder(64).slug]) == 1
    assert slurm.scripts == []


def spoil_attempt(folder, **changes):
    """Write another record into the current attempt."""
    copy = folder.attempt("17_1.r0").record
    record = decode(copy.read_bytes(), "record.json")
    copy.write_bytes(
        encode(a_record(record.cell, **({"attempt": "17_1.r0"} | changes)))
    )


NOT_PUBLISHED = {
    "of another attempt": lambda folder: spoil_attempt(folder, attempt="17_1.r1"),
    "invalid": lambda folder: folder.attempt("17_1.r0").record.write_bytes(b"{"),
    "superseded": lambda folder: folder.current.write_text("17_1.r1"),
    "still running": lambda folder: folder.attempt("17_1.r0").end.unlink(),
}


@pytest.mark.parametrize("kind", NOT_PUBLISHED)
def test_record_that_was_not_published_is_not_used(builder, kind, capsys):
    folder = builder.folder(64)
    NOT_PUBLISHED[kind](folder)
    assert cells(capsys)[folder.slug]["outcome"] == "missing"
    assert run(["collect", "mine"]) == 0
    assert not folder.record_json.exists()


# ---- studies that can only be read ----
