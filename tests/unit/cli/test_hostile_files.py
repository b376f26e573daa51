"""A file that waits, never ends, is huge, nested or lies costs its own cell only."""

import io
import json
import os
import re
import signal
import socket
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.record import Attempt
from hpml_jobs.study import files
from hpml_jobs.study.attempt import AttemptEnd
from hpml_jobs.study.files import encode, write_whole
from tests.unit.builders import V100, lab_cell, lab_record
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


def as_folder(path):
    path.unlink(missing_ok=True)
    path.mkdir()


def as_socket(path):
    path.unlink(missing_ok=True)
    here = Path.cwd()
    os.chdir(path.parent)  # the address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(path.name)
    finally:
        os.chdir(here)


def as_nested(path):
    path.write_bytes(b'{"cell": ' + b'{"a": [' * 100_000)


def as_huge(path):
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(300 * 10**6)  # a sparse file


HOSTILE = {
    "fifo": (as_fifo, "not a regular file (FIFO)"),
    "device": (as_device, "not a regular file (device)"),
    "folder": (as_folder, "Is a directory"),
    "socket": (as_socket, "No such device or address"),
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


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_study_file_is_one_line(builder, kind, capsys):
    make, words = HOSTILE[kind]
    make(builder.study.about)
    assert run(["status", "mine"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"study.json cannot be read: {words}" in line


def test_study_file_without_schema_is_called_damaged(builder, capsys):
    builder.study.about.write_text("{}")
    assert run(["status", "mine"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        "study.json has no schema number: it is damaged, or not of hpml_jobs; remove it"
        in line
    )


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_user_files_are_one_line(
    working_folder, user_config_file, kind, capsys
):
    make, words = HOSTILE[kind]
    make(working_folder / "times.csv")
    assert run(["import", "times.csv", "study=theirs"]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line or kind == "nested"
    make(user_config_file)
    assert run(["status"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_record_with_a_number_that_overflows_is_invalid(builder, victim, capsys):
    values = json.loads(victim.record_json.read_bytes())
    values["ranks"][2]["epochs"][1]["epoch_s"] = 1e308
    victim.record_json.write_bytes(encode(values))
    status, _ = texts(capsys, "status", "collect")
    assert "3 cells: 2 ok, 1 invalid" in status
    assert "ranks[2].epochs[1].epoch_s is not a number from -1e+100 to 1e+100" in status


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
    assert (
        f"is not what attempt {attempt.id} measured: ranks[3].epochs[1].epoch_s is 6.5, not 6.0"
        in status
    )


# ---- iterations.npz ----


def curves_of(record, **changes):
    """The arrays of a run whose iterations take as long as its record says."""
    epochs = [epoch for epoch in record.ranks[0].epochs if epoch.role != "unsynced"]
    shape = (len(record.ranks), sum(epoch.iterations for epoch in epochs))
    step_s = record.ranks[0].timed.epoch_s / record.ranks[0].timed.iterations
    arrays = {
        name: np.full(shape, step_s)
        for name in ("curve_loss", "curve_step_s", "curve_lr")
    }
    return arrays | changes


def saved(arrays, save=np.savez):
    content = io.BytesIO()
    save(content, **arrays)
    return content.getvalue()


def with_header(shape, data=b""):
    """A file of arrays whose header gives a shape, followed by some bytes."""
    header = io.BytesIO()
    description = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, description)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("curve_loss", "curve_step_s", "curve_lr"):
            file.writestr(f"{name}.npy", header.getvalue() + data)
    return content.getvalue()


ARRAYS = {
    "lying header": (
        lambda _: with_header((10**12,)),
        "cannot be read: ",
    ),
    "bomb": (
        lambda _: saved({"x": np.zeros(10**6)}, np.savez_compressed),
        "curve_loss is not a file in the archive",
    ),
    "short": (
        lambda record: with_header((4, sum_of(record))),
        "cannot be read: ",
    ),
    "deep header": (
        lambda _: saved({}) + b"(" * 9000,
        "curve_loss is not a file in the archive",
    ),
    "complex": (
        lambda record: saved(
            curves_of(record, curve_lr=np.full((4, sum_of(record)), 1j))
        ),
        "curve_lr is not of finite numbers",
    ),
    "nan": (
        lambda record: saved(
            curves_of(record, curve_loss=np.full((4, sum_of(record)), np.nan))
        ),
        "curve_loss is not of finite numbers",
    ),
    "other times": (
        lambda record: saved(
            curves_of(record, curve_step_s=np.ones((4, sum_of(record))))
        ),
        "the iterations of rank 0 take 391 s in the timed epoch, its record says 6 s",
    ),
    "other sum": (
        lambda record: saved(curves_of(record, last_stall_s=np.full(4, 3.0))),
        "the iterations of rank 0 take 9 s in the timed epoch, its record says 6 s",
    ),
}


def sum_of(record):
    return sum(
        epoch.iterations for epoch in record.ranks[0].epochs if epoch.role != "unsynced"
    )


def markdown(builder):
    text = (builder.study.report / "report.md").read_text()
    return " ".join(text.replace("\\", "").split())


@pytest.mark.parametrize("kind", ARRAYS)
def test_hostile_arrays_cost_their_curves_only(builder, victim, kind, capsys):
    make, words = ARRAYS[kind]
    victim.iterations.write_bytes(make(victim.read_record()))
    (collect,) = texts(capsys, "collect")
    assert "1.67" in collect  # the speedup of 4 GPUs
    note = markdown(builder)
    assert "no curves: iterations.npz" in note
    assert words in note


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "huge"])
def test_hostile_file_of_arrays_costs_its_curves_only(builder, victim, kind, capsys):
    HOSTILE[kind][0](victim.iterations)
    (collect,) = texts(capsys, "collect")
    assert "1.67" in collect


def test_arrays_that_agree_with_the_record_are_shown(builder, victim, capsys):
    victim.iterations.write_bytes(
        saved(curves_of(victim.read_record(), last_stall_s=np.zeros(4)))
    )
    texts(capsys, "collect")
    assert (
        "no curves: iterations.npz is missing: single 1-GPU at batch 32; ddp 2-GPU"
        in (markdown(builder))
    )
    assert (
        "ddp 4-GPU at batch 32" not in markdown(builder).partition("no curves")[2][:100]
    )
    assert (builder.study.report / "curves.csv").exists()


def test_log_that_grows_is_read_in_parts(tmp_path):
    log = tmp_path / "log.txt"
    log.write_bytes(b"x" * (files.LOG_BYTES + 5))
    assert len(files.read_from(log, 0)) == files.LOG_BYTES
    assert files.read_from(log, files.LOG_BYTES) == b"xxxxx"


def test_values_that_python_cannot_count_cost_nothing(builder, victim, capsys):
    """Digits that are none, a date without a next day, names that are no text, a line of 9999."""
    text = victim.record_json.read_text()
    for batch, variables in ((33, {"CPUS": "²"}), (34, {"GPUS": "9" * 5000})):
        slurm = {f"SLURM_{name}_ON_NODE": number for name, number in variables.items()}
        facts = msgspec.structs.replace(V100, slurm=slurm, gpus_visible=8)
        builder.with_record(lab_record(lab_cell(8, batch), 6.0, 0.0, facts))
    year_9999 = re.sub(r'"started": "[^"]*"', '"started": "9999-12-31T23:59:59Z"', text)
    victim.record_json.write_text(year_9999)
    builder.study.cell(os.fsdecode(b"\xff\xfe")).root.mkdir()
    with builder.study.manifest.open("a") as manifest:
        for moment in ("not a time", "0001-01-01T00:00:00Z"):
            line = {
                "happening": "sending",
                "batch": "b9",
                "cells": [victim.slug],
                "time": moment,
            }
            manifest.write(json.dumps(line) + "\n")
    status, collect = texts(capsys, "status", "collect")
    assert "5 cells: 5 ok" in status
    assert "1.25" in collect


def test_two_thousand_runs_of_a_cell_are_reported(builder, capsys):
    rows = "".join(f"{number},1,32,10.{number:04}\n" for number in range(1_030))
    Path("many.csv").write_text("run,gpus,batch,epoch_s\n" + rows)
    assert run(["import", "many.csv", "study=many"]) == 0
    assert run(["collect", "many"]) == 0
    assert "10.05" in capsys.readouterr().out
