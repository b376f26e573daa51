"""The test SLURM for tests: start it, run commands on it, wait for the states of jobs."""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.patience import PATIENCE_S, timeout
from tests.rig import processes
from tests.rig.configuration import Accounting, with_slurm

_ROOT = Path(__file__).parents[2]
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_PROGRAMS = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "sbatch",
    "munged",
    "mariadbd",
    "setpriv",
)
_INSTALL = "apt-get install -y slurmctld slurmd slurmdbd slurm-client munge mariadb-server faketime"
_OF_A_JOB = re.compile(r"(SLURM|SRUN|SBATCH|SALLOC|SQUEUE|SACCT|SINFO|PMI)_")
_UNFINISHED = {
    "PENDING",
    "CONFIGURING",
    "RUNNING",
    "COMPLETING",
    "SUSPENDED",
    "REQUEUED",
}


class RigError(Exception):
    """The test SLURM did not start; the message names the daemon, with the end of its log."""


def missing_requirement() -> str | None:
    """Return why the rig cannot run here, in one line, or None."""
    path = with_slurm(f"{os.environ.get('PATH', '')}:{_SBIN}")
    absent = [
        program for program in _PROGRAMS if shutil.which(program, path=path) is None
    ]
    if absent:
        return f"the test SLURM needs {', '.join(absent)}: {_INSTALL}"
    if os.geteuid() != 0:
        return (
            "the test SLURM needs root: it makes device files and appends to /etc/hosts"
        )
    return None


class Rig:
    """One running cluster named `rig`; several can run at the same time.

    `env` is a whole environment for commands: this process's, without what an outer SLURM job
    left in it, plus SLURM_CONF. `pids` are the daemons' (slurmctld, slurmdbd, gr001, ...).
    """

    def __init__(
        self, folder: Path | None = None, accounting: Accounting = Accounting.KEPT
    ) -> None:
        """A new temporary folder, removed at the end, or `folder`, absent or empty, which stays."""
        self.accounting = accounting
        self._temporary = folder is None
        # The supervisor makes and removes it, however this process ends.
        fresh = Path(tempfile.gettempdir(), f"rig-{secrets.token_hex(4)}")
        self.folder = (folder or fresh).resolve()
        self.env = {
            name: v for name, v in os.environ.items() if not _OF_A_JOB.match(name)
        }
        self.env["PATH"] = with_slurm(os.environ.get("PATH", ""))
        self.env["SLURM_CONF"] = str(self.folder / "slurm.conf")
        self.pids: dict[str, int] = {}
        self._supervisor: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Return when every node is idle. Raises RigError, with nothing left running."""
        command = [sys.executable, "-m", "tests.rig.daemons", str(self.folder)]
        command += ["--owner", str(os.getpid()), "--accounting", self.accounting]
        command += ["--remove"] if self._temporary else []
        # A session of its own: Ctrl-C ends the tests first, and they end the rig.
        self._supervisor = subprocess.Popen(
            command,
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            self._read_reply("the test SLURM did not start")
        except BaseException:
            self.stop()
            raise

    def _read_reply(self, fault: str) -> None:
        """Read the supervisor's answer: the pids of the daemons."""
        assert self._supervisor is not None
        assert self._supervisor.stdout is not None
        answer = json.loads(
            self._supervisor.stdout.readline() or '{"failed": "the supervisor ended"}'
        )
        if "failed" in answer:
            raise RigError(f"{fault}: {answer['failed']}")
        self.pids = answer

    def _send_command(self, verb: str, name: str) -> None:
        assert self._supervisor is not None
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.write(f"{verb} {name}\n")
        self._supervisor.stdin.flush()
        self._read_reply(f"{verb} {name}")

    def stop_daemon(self, name: str) -> None:
        """Stop slurmctld, slurmdbd, mariadbd or a node's slurmd by SIGTERM; jobs keep running."""
        self._send_command("stop", name)

    def kill_daemon(self, name: str) -> None:
        """Kill a daemon by SIGKILL; jobs keep running."""
        self._send_command("kill", name)

    def start_daemon(self, name: str) -> None:
        """Start a stopped daemon with its saved state; return when it listens."""
        self._send_command("start", name)

    def small_disk(self, mebibytes: int) -> Path:
        """Mount a small file system and return its folder; once per rig."""
        self._send_command("disk", str(mebibytes))
        return self.folder / "disk"

    @contextmanager
    def hidden(self, node: str, folder: Path) -> Iterator[None]:
        """Give a node an empty folder of its own in place of `folder`, as nodes in a cloud have."""
        self._send_command("hide", f"{node}={folder}")
        try:
            yield
        finally:
            self._send_command("hide", f"{node}=")

    def drain(self, *nodes: str) -> None:
        """Drain nodes, as an administrator does: running jobs finish, no job starts."""
        reason = ("State=DRAIN", "Reason=a test drains it")
        self.run(
            "scontrol", "update", f"NodeName={','.join(nodes)}", *reason
        ).check_returncode()

    def resume(self, *nodes: str) -> None:
        """Let drained nodes start jobs again."""
        name = f"NodeName={','.join(nodes)}"
        self.run("scontrol", "update", name, "State=RESUME").check_returncode()

    def stop(self) -> None:
        """End every process of the rig, jobs included; do nothing if it is not running."""
        if self._supervisor is None:
            return
        self._supervisor.terminate()
        try:
            self._supervisor.wait(timeout(3))
        except subprocess.TimeoutExpired:
            self._supervisor.kill()  # its daemons die with it
            self._supervisor.wait()
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            if pipe is not None:
                pipe.close()
        self._supervisor = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command on this cluster; the caller checks the exit code."""
        return subprocess.run(
            command,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def sbatch(self, *arguments: str, script: str) -> str:
        """Submit the lines of `script` as a batch job without an output file; return its id.

        Raises AssertionError with SLURM's message if it refuses.
        """
        text = f"#!/bin/bash\n{script}\n"
        command = ["sbatch", "--parsable", "--output=/dev/null", *arguments]
        done = subprocess.run(
            command,
            env=self.env,
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def sacct(
        self, job_id: str, *fields: str, duplicates: bool = False
    ) -> list[dict[str, str]]:
        """Return a dict per job or array task, by field; with `duplicates` earlier attempts too."""
        options = ["--duplicates"] if duplicates else []
        done = self.run(
            "sacct", "-X", "-P", "-n", "-j", job_id, "-o", ",".join(fields), *options
        )
        done.check_returncode()
        return [
            dict(zip(fields, row.split("|"), strict=True))
            for row in done.stdout.splitlines()
        ]

    def wait_for_state(self, job_id: str, states: Collection[str]) -> list[str]:
        """Wait until the job, or each task of the array, is in one of `states`; return theirs.

        Raises AssertionError with the state and the log, at once if one has ended in another state.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            # Accounting lags up to 5 s behind the controller, task by task. Only accounting keeps
            # how a job ended, and tests read it next.
            live = self.run(
                "squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T"
            ).stdout.split()
            if live and set(live) <= set(states) & _UNFINISHED:
                return live
            booked = live  # for MinJobAge, a minute
            # "CANCELLED by 0" names who, too
            if self.accounting is not Accounting.NONE:
                booked = [
                    row["State"].split()[0] for row in self.sacct(job_id, "State")
                ]
            if len(booked) >= max(1, len(live)) and set(booked) <= set(states):
                return booked
            # A job that runs again has ended for accounting only.
            ended = set(booked) & set(live or booked) - set(states) - _UNFINISHED
            if ended or time.monotonic() > deadline:
                raise AssertionError(
                    f"job {job_id} is {live or booked}, not {sorted(states)}; "
                    f"its log: {self._log_of(job_id)}\n{self.run('squeue', '-l').stdout}"
                )
            time.sleep(0.5)

    def _log_of(self, job_id: str) -> str:
        job = self.run("scontrol", "show", "job", job_id).stdout
        return ", ".join(re.findall(r"StdOut=(\S+)", job)) or "not known any more"

    def alive_processes_of(self, marker: str) -> list[int]:
        """Return the pids whose command line or environment contains `marker`."""
        return processes.alive_processes_of(marker)
