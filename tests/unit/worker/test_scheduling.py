"""The operating system's accounts: real processes that compute, wait, stop and share a CPU."""

import multiprocessing
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

SPIN = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.fixture
def one_cpu():
    """Confine this process and its children to one CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


def test_another_process_on_the_cpu_is_waited_for(one_cpu):
    reader = SchedulingReader(0)
    before = reader.read()
    other = subprocess.Popen([sys.executable, "-c", SPIN.format(seconds=30)])
    try:
        # of this process, however many others there are
        end_s = time.process_time() + 0.3
        while time.process_time() < end_s:
            pass
        account = reader.since(before)
    finally:
        other.kill()
        other.wait()
    assert account.window_s >= 0.3
    assert account.run_queue_s > 0.05
    assert account.busy_s > 0.05
    assert account.cpu_s > 0.35  # with the child that still runs


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


def test_waits_of_living_loader_workers_are_read(one_cpu):
    reader = SchedulingReader(2)
    before = reader.read()
    context = multiprocessing.get_context("fork")
    done, end = context.Semaphore(0), context.Event()
    args = (reader.loader_waits, done, end)
    workers = [
        context.Process(target=_work, args=(number, *args)) for number in range(2)
    ]
    for worker in workers:
        worker.start()
    for _ in workers:
        done.acquire()
    account = reader.since(before)
    end.set()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert account.loader_run_queue_s > 0.05


def _work(number, waits, done, end):
    waits.start_worker(number)
    spin(0.3)
    done.release()
    end.wait()


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


MOUNTS = {
    "v2": "30 1 0:1 / {root}/sys rw - cgroup2 cgroup2 rw",
    "v1": "30 1 0:1 / {root}/sys rw - cgroup cgroup rw,cpu,cpuacct",
    "container": "30 1 0:1 /slurm {root}/sys rw - cgroup2 cgroup2 rw",
}
GROUPS = {
    "v2": "0::/slurm/job_7",
    "v1": "4:cpu,cpuacct:/slurm/job_7",
    "container": "0::/slurm/job_7",
}


@pytest.mark.parametrize("kind", MOUNTS)
def test_throttling_of_all_groups_above_counts(kind, tmp_path, monkeypatch):
    proc = tmp_path / "proc" / "self"
    proc.mkdir(parents=True)
    (proc / "mountinfo").write_text(MOUNTS[kind].format(root=tmp_path) + "\n")
    (proc / "cgroup").write_text(GROUPS[kind] + "\n")
    job = Path(
        tmp_path, "sys", *(("job_7",) if kind == "container" else ("slurm", "job_7"))
    )
    job.mkdir(parents=True)
    line = "throttled_time 2000000000" if kind == "v1" else "throttled_usec 2000000"
    (job / "cpu.stat").write_text(f"nr_throttled 3\n{line}\n")
    (job.parent / "cpu.stat").write_text(f"nr_throttled 3\n{line}\n")
    monkeypatch.setattr(scheduling, "PROC", tmp_path / "proc")
    assert scheduling.throttled_s() == pytest.approx(4.0)
