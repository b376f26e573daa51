"""A file that waits, never ends, is huge, nested or lies costs its own cell only."""

import json
import os
import re
import signal

import numpy as np
import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.record import Attempt
from hpml_jobs.study.cell_folder import AttemptEnd
from hpml_jobs.study.files import encode, write_whole
from tests.unit.builders import lab_cell, lab_record
from tests.unit.plans import plan_of
from tests.unit.study_builder import SHAPE, StudyBuilder

SECONDS = 120
"""A command that waits for a hostile file is ended after so long."""


@pytest.fixture(autouse=True)
def _no_endless_command():
    def give_up(*_):
        raise TimeoutError(f"the command took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def builder(slurm, working_folder):
    """Three measured cells; the hostile file is of the one on 4 GPUs."""
    builder = StudyBuilder(working_folder / "outputs" / "mine")
    for gpus, epoch_s in ((1, 10.0), (2, 8.0), (4, 6.0)):
        builder.with_record(lab_record(lab_cell(gpus, 32), epoch_s))
    return builder


@pytest.fixture
def victim(builder):
    """The folder of the cell whose files are hostile."""
    return builder.study.cell(lab_cell(4, 32).slug)


def as_fifo(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def as_device(path):
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def as_nested(path):
    path.write_bytes(b'{"cell": ' + b'{"a": [' * 100_000)


def as_huge(path):
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(300 * 10**6)  # a sparse file


HOSTILE = {
    "fifo": (as_fifo, "not a regular file (FIFO)"),
    "device": (as_device, "not a regular file (device)"),
    "nested": (as_nested, "nested too deeply"),
    "huge": (as_huge, "300 MB are more than the limit of "),
}


def texts(capsys, *commands):
    """What commands print; none of them ends in an error or a traceback."""
    printed = []
    for command in commands:
        assert run([command, "mine"]) == 0, capsys.readouterr().err
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        printed.append(" ".join(out.split()))
    return printed


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_record_costs_its_own_cell_only(builder, victim, kind, capsys):
    make, words = HOSTILE[kind]
    make(victim.record_json)
    status, collect = texts(capsys, "status", "collect")
    assert "3 cells: 2 ok, 1 invalid" in status
    assert words in status
    assert "1.25" in collect  # the speedup of 2 GPUs
    assert words in collect


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_cell_file_keeps_the_cells_record(builder, victim, kind, capsys):
    make, words = HOSTILE[kind]
    make(victim.cell_json)
    status, _ = texts(capsys, "status", "collect")
    assert "3 cells: 3 ok" in status
    page = (builder.study.report / "report.md").read_text().replace("\\", "")
    assert f"{victim.slug}: cell.json cannot be read: {words}" in page


SMALL_FILES = (
    "attempts/current",
    "attempts/17_0.r0/end.json",
    "attempts/17_0.r0/attempt.json",
)


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_of_a_job_keep_records(builder, victim, kind, capsys):
    """Of the attempt, of SLURM's answers, of the log: the records are shown all the same."""
    make, _ = HOSTILE[kind]
    attempt = victim.attempt("17_0.r0")
    attempt.errors.mkdir(parents=True)
    paths = [victim.root / name for name in SMALL_FILES]
    paths += [
        builder.study.slurm_answers,
        attempt.log_of(0),
        attempt.errors / "rank0.json",
    ]
    for path in paths:
        make(path)
    builder.sent_as("17_0", "17_1", "17_2")
    status, *_ = texts(capsys, "status", "collect", "logs", "cancel")
    assert "3 cells: 3 ok" in status


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_manifest_is_named_and_sends_nothing(builder, slurm, kind, capsys):
    make, words = HOSTILE[kind]
    builder.with_cell(lab_cell(8, 32), shape=SHAPE)
    builder.study.write_cluster(plan_of("cluster=greene", "gpu_type=v100").cluster)
    make(builder.study.manifest)
    if kind == "nested":
        return  # a damaged line is skipped
    assert run(["status", "mine"]) == 0
    assert "3 ok, 1 missing" in " ".join(capsys.readouterr().out.split())
    assert run(["resubmit", "mine", "--missing"]) == 1
    complaint = capsys.readouterr().err
    assert words in complaint or "is a folder: remove it" in complaint
    assert len(complaint.splitlines()) == 1
    assert slurm.scripts == []


def test_control_characters_of_files_reach_no_terminal_and_no_report(
    builder, victim, capsys
):
    """Of a record, an exit report, a log and a command, in every command that shows them."""
    evil = "\x1b]0;title\x07\x9b2J=cmd|x"
    values = json.loads(victim.record_json.read_bytes())
    values["facts"] |= {"cpu_model": evil, "gpu_model": evil, "container": "=cmd|x"}
    victim.record_json.write_bytes(encode(values))
    (batch,) = (
        cell.batch
        for cell in builder.cells
        if cell.slug != victim.slug and cell.gpus > 1
    )
    failed = builder.study.cell(next(c.slug for c in builder.cells if c.batch == batch))
    failed.record_json.unlink()
    about = Attempt(id="7.r0", job="7")
    end = AttemptEnd(attempt=about, outcome="failed", reason=evil)
    write_whole(failed.attempt("7.r0").about, encode(about))
    write_whole(failed.attempt("7.r0").end, encode(end))
    write_whole(failed.attempt("7.r0").root / "log.txt", f"a\tb\n{evil}\n".encode())
    write_whole(failed.current, b"7.r0")
    builder.study.add_command(f"hpml-jobs {evil}\n```")
    shown = "".join(texts(capsys, "status", "collect"))
    assert run(["logs", "mine"]) == 0
    shown += capsys.readouterr().out
    report = [
        path for path in builder.study.report.iterdir() if path.suffix not in (".png",)
    ]
    written = "".join(path.read_text() for path in report)
    assert "]0;title" in shown
    assert "]0;title" in written
    assert not re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown + written)
    assert "a\tb\n" in shown
    assert ",'=cmd|x," in (builder.study.report / "cells.csv").read_text()
    assert "```" not in re.sub(
        "(?m)^    .*", "", (builder.study.report / "report.md").read_text()
    )


def test_edited_epoch_time_is_found_by_its_iterations(builder, victim, capsys):
    values = json.loads(victim.record_json.read_bytes())
    for rank in values["ranks"]:
        rank["epochs"][1].update(epoch_s=2.0, stall_s=0.06)
    victim.record_json.write_bytes(encode(values))
    status, _ = texts(capsys, "status", "collect")
    assert "3 cells: 2 ok, 1 invalid" in status
    assert "timed epoch: 2.0 s, but its 391 iterations took at least 2.9" in status


@pytest.mark.parametrize("case", ["no attempt", "another attempt of this name"])
def test_record_that_no_attempt_of_the_cell_wrote_is_invalid(
    builder, victim, capsys, case
):
    """A record with another attempt's name, and one of another study copied over the cell's."""
    values = json.loads(victim.record_json.read_bytes())
    if case == "no attempt":
        values["attempt"]["id"] = "nosuch.r0"
        reason = "is of attempt nosuch.r0, which this cell does not have"
    else:
        about = Attempt(
            id=values["attempt"]["id"], job="1", started="2026-01-01T00:00:00+00:00"
        )
        write_whole(victim.attempt(about.id).about, encode(about))
        values["attempt"]["started"] = "2026-02-02T00:00:00+00:00"
        reason = f"is not what attempt {about.id} measured: it started at 2026-02-02T00:00:00"
    victim.record_json.write_bytes(encode(values))
    status, _ = texts(capsys, "status", "collect")
    assert "3 cells: 2 ok, 1 invalid" in status
    assert reason in status


def test_edited_epoch_time_is_found_by_its_attempt(builder, victim, capsys):
    record = victim.read_record()
    attempt = victim.attempt(record.attempt.id)
    attempt.record.write_bytes(victim.record_json.read_bytes())
    values = json.loads(victim.record_json.read_bytes())
    values["ranks"][3]["epochs"][1]["epoch_s"] = 6.5
    victim.record_json.write_bytes(encode(values))
    status, _ = texts(capsys, "status", "collect")
    assert "3 cells: 2 ok, 1 invalid" in status
    assert f"is not what attempt {attempt.id} measured: it was changed" in status


# ---- iterations.npz ----


def markdown(builder):
    text = (builder.study.report / "report.md").read_text()
    return " ".join(text.replace("\\", "").split())


def test_arrays_of_other_times_than_the_record_cost_their_curves_only(
    builder, victim, capsys
):
    epochs = victim.read_record().ranks[0].epochs
    iterations = sum(epoch.iterations for epoch in epochs if epoch.role != "unsynced")
    names = ("curve_loss", "curve_step_s", "curve_lr")
    np.savez(victim.iterations, **dict.fromkeys(names, np.ones((4, iterations))))
    (collect,) = texts(capsys, "collect")
    assert "1.67" in collect  # the speedup of 4 GPUs
    note = markdown(builder)
    assert "no curves: iterations.npz" in note
    words = (
        "the iterations of rank 0 take 391 s in the timed epoch, its record says 6 s"
    )
    assert words in note
