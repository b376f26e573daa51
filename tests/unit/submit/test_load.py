"""The load of this machine before the first cell: what is said, and how long it is waited for."""

import pytest

from hpml_jobs.core import process_times
from hpml_jobs.submit.load import (
    Load,
    Program,
    QuietWait,
    _processes,
    measured_load,
)

BUSY = Load(cpus=2, used=1.7, withheld=0.0, program=Program("python of alice", 0.9))
QUIET = Load(cpus=2, used=0.04, withheld=0.0)


def said(minutes, *loads, cells=1):
    lines = []
    answers = iter(loads)
    quiet = QuietWait(minutes, lines.append, lambda: next(answers))
    for _ in range(cells):
        quiet.wait()
    assert not list(answers)
    return lines


def test_busy_machine_is_named_with_what_it_means_and_the_key_that_waits():
    assert said(0, BUSY) == [
        "this machine is busy: other programs use 1.7 of 2 CPUs; the busiest is python of alice.\n"
        "Times may be longer: collect marks those with ! or leaves them out; quiet_minutes=10 "
        "waits for a quiet machine, 10 minutes at most"
    ]


def test_quiet_machine_is_one_short_line():
    assert said(10, QUIET) == [
        "this machine is quiet: other programs use 0.0 of 2 CPUs"
    ]


def test_waiting_ends_when_the_machine_is_quiet():
    first, last = said(10, BUSY, BUSY, QUIET)
    assert first.endswith("the busiest is python of alice. Waiting 10 min at most")
    assert last.startswith("quiet after 0 s: other programs use 0.0 of 2 CPUs")


def test_waiting_ends_at_its_limit(monkeypatch):
    seconds = iter(range(0, 1000, 40))
    monkeypatch.setattr("hpml_jobs.submit.load.time.monotonic", lambda: next(seconds))
    lines = said(1, BUSY, BUSY, BUSY)
    assert lines[-1].startswith(
        "still busy after 1 minute of waiting: other programs use 1.7 of 2 CPUs"
    )


def test_machine_is_measured_before_each_cell(monkeypatch):
    seconds = iter(range(0, 1000, 40))
    monkeypatch.setattr("hpml_jobs.submit.load.time.monotonic", lambda: next(seconds))
    lines = said(2, QUIET, BUSY, QUIET, QUIET, BUSY, BUSY, BUSY, cells=5)
    assert [line.partition(":")[0] for line in lines] == [
        "this machine is quiet",
        "this machine is busy",
        "quiet after 40 s",
        "this machine is busy",
        "still busy after 2 minutes of waiting",
    ]
    assert lines[3].endswith("Waiting 1 min at most")


def test_without_a_wait_the_load_is_said_once():
    assert len(said(0, BUSY, cells=3)) == 1


def test_hypervisor_that_takes_cpus_is_named():
    load = Load(cpus=4, used=0.1, withheld=0.8)
    assert not load.is_quiet
    assert load.words == "other programs use 0.1 of 4 CPUs; the hypervisor takes 0.8"


def test_load_of_this_machine_can_be_read():
    load = measured_load(0.05)
    assert load is not None
    assert load.cpus >= 1
    assert load.used >= 0
    assert load.program is not None


def test_kernel_thread_is_the_operating_system(tmp_path, monkeypatch):
    thread = tmp_path / "17"
    thread.mkdir()
    (thread / "comm").write_text("kdamond.0\n")
    stat = "17 (kdamond.0) R 2 0 0 0 -1 2129984 0 0 0 0 0 900 20 0 1 0 5 0 0"
    (thread / "stat").write_text(stat)
    monkeypatch.setattr(process_times, "PROC", tmp_path)
    monkeypatch.setattr("hpml_jobs.submit.load.PROC", tmp_path)
    assert [process.words for process in _processes()] == ["the operating system"]


def test_nothing_is_said_where_the_load_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(process_times, "PROC", tmp_path)
    lines = []
    QuietWait(0, lines.append, lambda: measured_load(0.0)).wait()
    assert lines == []


@pytest.mark.parametrize("load", [BUSY, Load(cpus=2, used=0.0, withheld=0.5)])
def test_limits_are_those_of_the_check_of_disturbed_epochs(load):
    assert not load.is_quiet
