"""The time of a rank from the start of its job to the end of its first iteration, by part."""

import os

from hpml_jobs.core.measurements import Startup
from hpml_jobs.core.process_times import process_started_s, since_boot_s
from hpml_jobs.study.attempt import JOB_STARTED_VARIABLE
from hpml_jobs.worker.instruments.timing import IterationTimes


class StartupTimer:
    """Notes when each part of the start is done; all times are in seconds since boot."""

    def __init__(self) -> None:
        self._process_s = process_started_s()
        self._last_s = self._process_s
        self._parts_s: dict[str, float] = {}

    def end(self, part: str) -> None:
        """Note that a part of `Startup` is done; it began when the one before it was done."""
        now_s = since_boot_s()
        if now_s is not None and self._last_s is not None:
            self._parts_s[part] = max(0.0, now_s - self._last_s)  # a process starts within 10 ms
        self._last_s = now_s

    def summary(self, times: IterationTimes) -> Startup:
        """Return the parts; the last two are those of the warm-up epoch's first iteration."""
        return Startup(
            launch_s=self._launch_s(),
            first_batch_s=float(times.stall_s[0]),
            first_iteration_s=float(times.step_s[0] - times.stall_s[0]),
            **self._parts_s,
        )

    def _launch_s(self) -> float | None:
        """Return the seconds from the start of the job's wrapper to that of this process."""
        job_started = os.environ.get(JOB_STARTED_VARIABLE)
        if not job_started or self._process_s is None:
            return None
        return max(0.0, self._process_s - float(job_started))
