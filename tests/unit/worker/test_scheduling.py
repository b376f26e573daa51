"""The operating system's accounts: waits, CPU time, stops and quotas of a rank."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpml_jobs.core import process_times
from hpml_jobs.core.process_times import UnreadableError
from hpml_jobs.worker.instruments import scheduling
from hpml_jobs.worker.instruments.scheduling import SchedulingReader


def write_accounts(folder, *, waited_ns, busy_ticks):
    """Write what Linux says of this process, without children, and of its CPUs."""
    thread = folder / str(os.getpid()) / "task" / "1"
    thread.mkdir(parents=True, exist_ok=True)
    (thread / "schedstat").write_text(f"1 {waited_ns} 1\n")
    (thread / "children").touch()
    ticks = f"{busy_ticks} 0 0 0 0 0 0 0"
    cpus = [f"cpu{number} {ticks}\n" for number in os.sched_getaffinity(0)]
    (folder / "stat").write_text("".join(cpus))


def test_waits_and_busy_cpus_are_differences_of_two_readings(tmp_path, monkeypatch):
    for module in (scheduling, process_times):
        monkeypatch.setattr(module, "PROC", tmp_path)
    monkeypatch.setattr(scheduling, "start_loader_worker", lambda: None)
    reader = SchedulingReader(1)
    reader.loader_waits.start_worker(0)
    write_accounts(tmp_path, waited_ns=5_000_000_000, busy_ticks=700)
    before = reader.read()
    write_accounts(tmp_path, waited_ns=5_300_000_000, busy_ticks=720)
    account = reader.since(before)
    assert account.run_queue_s == pytest.approx(0.3)
    assert account.loader_run_queue_s == pytest.approx(0.3)
    busy_s = 20 * process_times.TICK_S * len(os.sched_getaffinity(0))
    assert account.busy_s == pytest.approx(busy_s)


def test_cpu_time_of_ended_children_counts():
    reader = SchedulingReader(0)
    before = reader.read()
    child = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", child], check=True)
    assert reader.since(before).cpu_s >= 0.3


def test_continued_process_counts_each_stop_with_its_time():
    reader = SchedulingReader(0)
    before = reader.read()
    assert reader.since(before).continued_s == ()
    helper = f"import os, signal, time\nos.kill({os.getpid()}, signal.SIGSTOP)\ntime.sleep(0.2)\n"
    helper += f"os.kill({os.getpid()}, signal.SIGCONT)"
    process = subprocess.Popen([sys.executable, "-c", helper])
    process.wait()
    account = reader.since(before)
    assert len(account.continued_s) == 1
    assert 0 < account.continued_s[0] <= account.window_s


def test_earlier_handler_of_sigcont_still_gets_it():
    calls = []
    before = signal.signal(signal.SIGCONT, lambda *_: calls.append(1))
    try:
        counter = scheduling.ContinueSignals()
        os.kill(os.getpid(), signal.SIGCONT)
        time.sleep(0)
        assert calls == [1]
        assert len(counter.times_s) == 1
    finally:
        signal.signal(signal.SIGCONT, before)


def test_replaced_handler_of_sigcont_is_reported_missing():
    reader = SchedulingReader(0)
    earlier = signal.signal(signal.SIGCONT, signal.SIG_DFL)
    try:
        assert reader.since(reader.read()).continued_s is None
    finally:
        signal.signal(signal.SIGCONT, earlier)
    assert reader.missing == ["SIGCONT: other code has replaced the handler"]


def test_system_without_accounts_gives_none_with_reason(tmp_path, monkeypatch):
    for module in (scheduling, process_times):
        monkeypatch.setattr(module, "PROC", tmp_path)
    reader = SchedulingReader(0)
    account = reader.since(reader.read())
    values = (account.run_queue_s, account.busy_s, account.throttled_s, account.cpu_s)
    assert values == (None,) * 4
    assert {reason.partition(":")[0] for reason in reader.missing} >= {"run-queue wait"}


def test_kernel_without_statistics_reports_no_wait(tmp_path, monkeypatch):
    thread = tmp_path / "7" / "task" / "7"
    thread.mkdir(parents=True)
    (thread / "schedstat").write_text("0 0 0\n")
    monkeypatch.setattr(scheduling, "PROC", tmp_path)
    with pytest.raises(UnreadableError, match="no scheduling statistics"):
        scheduling.thread_waits_s(7)


GROUPS = {
    "v2": "0::/slurm/job_7",
    "v1": "4:cpu,cpuacct:/slurm/job_7",
}


@pytest.mark.parametrize("kind", GROUPS)
def test_throttling_of_all_groups_above_counts(kind, tmp_path, monkeypatch):
    proc = tmp_path / "proc" / "self"
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text(GROUPS[kind] + "\n")
    job = Path(tmp_path, "sys", *["cpu"] * (kind == "v1"), "slurm", "job_7")
    job.mkdir(parents=True)
    line = "throttled_time 2000000000" if kind == "v1" else "throttled_usec 2000000"
    (job / "cpu.stat").write_text(f"nr_throttled 3\n{line}\n")
    (job.parent / "cpu.stat").write_text(f"nr_throttled 3\n{line}\n")
    monkeypatch.setattr(scheduling, "PROC", tmp_path / "proc")
    monkeypatch.setattr(scheduling, "CGROUPS", tmp_path / "sys")
    assert scheduling.throttled_s() == pytest.approx(4.0)
