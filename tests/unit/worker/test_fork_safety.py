"""Other threads are awaited before a process is forked, but not for ever."""

import threading
import time

from hpml_jobs.worker import fork_safety as forking
from hpml_jobs.worker.fork_safety import await_idle_threads


def test_working_thread_is_awaited_and_sleeping_one_is_not(monkeypatch):
    monkeypatch.setattr(forking, "PATIENCE_S", 60.0)
    over, ended, asleep = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        end_s = time.monotonic() + 0.3
        while time.monotonic() < end_s:
            pass
        ended.set()
        asleep.wait()

    threads = [threading.Thread(target=work), threading.Thread(target=over.wait)]
    for thread in threads:
        thread.start()
    try:
        await_idle_threads()
        assert ended.is_set()
        await_idle_threads()  # both sleep now: nothing is waited for
    finally:
        over.set()
        asleep.set()
        for thread in threads:
            thread.join()


def test_busy_thread_is_awaited_for_limited_time(monkeypatch):
    monkeypatch.setattr(forking, "PATIENCE_S", 0.05)
    over = threading.Event()

    def spin() -> None:
        while not over.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        await_idle_threads()
        assert thread.is_alive()
    finally:
        over.set()
        thread.join()
