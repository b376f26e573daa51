"""Other threads are awaited before a process is forked, for a limited time."""

import select
import threading

from hpml_jobs.worker import fork_safety
from hpml_jobs.worker.fork_safety import await_idle_threads


def thread_in(folder, state):
    """Write the state of a thread as Linux does: R runs, S sleeps."""
    (folder / "1").mkdir(exist_ok=True)
    (folder / "1" / "stat").write_text(f"1 (python) {state} 0")


def test_working_thread_is_awaited_and_sleeping_one_is_not(monkeypatch, tmp_path):
    polls = []

    def sleep(*_):
        polls.append(1)
        thread_in(tmp_path, "R" if len(polls) < 3 else "S")

    monkeypatch.setattr(fork_safety, "Path", lambda _: tmp_path)
    monkeypatch.setattr(select, "select", sleep)
    monkeypatch.setattr(threading, "get_native_id", lambda: 7)
    thread_in(tmp_path, "R")
    await_idle_threads()
    assert len(polls) == 3
    await_idle_threads()  # it sleeps now: nothing is waited for
    assert len(polls) == 3
