"""Other threads are awaited before a process is forked, for a limited time."""

import threading
import time

from hpml_jobs.worker import fork_safety
from hpml_jobs.worker.fork_safety import await_idle_threads


def test_working_thread_is_awaited_and_sleeping_one_is_not(monkeypatch):
    monkeypatch.setattr(fork_safety, "TIMEOUT_S", 60.0)
    stop, ended, asleep = threading.Event(), threading.Event(), threading.Event()

    def work():
        deadline = time.monotonic() + 0.3
        while time.monotonic() < deadline:
            pass
        ended.set()
        asleep.wait()

    threads = [threading.Thread(target=work), threading.Thread(target=stop.wait)]
    for thread in threads:
        thread.start()
    try:
        await_idle_threads()
        assert ended.is_set()
        await_idle_threads()  # both sleep now: nothing is waited for
    finally:
        stop.set()
        asleep.set()
        for thread in threads:
            thread.join()
