"""A study to inject a fault into: submit it, block its ranks, release them, read its states."""

import json
import subprocess
from pathlib import Path
from typing import Any

from hpml_jobs.study.study import Study
from tests.conftest import Program
from tests.journeys.conftest import HERE
from tests.patience import wait_until
from tests.rig import Rig, processes

DEFAULTS = ("protocol=lab", "cluster.isolate=off")
OWN_CODE = (
    "workload=custom",
    "workload.data=blocking_models:dataset",
)
BUILT_IN = ("workload=digits", "data.limit=256")  # a submission need not import torch


def write_fake_sbatch(folder: Path, lines: str, name: str = "sbatch") -> None:
    """Write a script named sbatch into a new folder, which a test puts first on PATH."""
    folder.mkdir()
    script = folder / name
    script.write_text(f"#!/bin/sh\n{lines}\n")
    script.chmod(0o755)


class FaultStudy:
    """One study on a test SLURM, by default of a built-in workload.

    Ranks with `model="Blocking"` wait in their first iteration.
    """

    def __init__(
        self, login: Program, rig: Rig, name: str, *words: str, model: str = ""
    ) -> None:
        self.login, self.rig, self.name = login, rig, name
        model_word = model if ":" in model else f"blocking_models:{model}"
        workload = (*OWN_CODE, f"workload.model={model_word}") if model else BUILT_IN
        common = (f"study={name}", "cluster=rig", *workload)
        given = {word.partition("=")[0] for word in words}
        defaults = [word for word in DEFAULTS if word.partition("=")[0] not in given]
        self.words = [*words, *defaults, *common, "--config-dir", str(HERE / "conf")]
        outputs = [
            word.partition("=")[2] for word in words if word.startswith("outputs=")
        ]
        self.outputs = Path(outputs[0] if outputs else login.folder / "outputs")
        self.study = Study(self.outputs / name)

    def submit(self) -> "FaultStudy":
        """Submit the study; SLURM must accept it."""
        self.login.ok(*self.words)
        return self

    def start_submit(self, **environment: str) -> subprocess.Popen[str]:
        """Start the submission, in a session of its own, and return without waiting."""
        command = [self.login.python, "-m", "hpml_jobs", *self.words]
        return subprocess.Popen(
            command,
            cwd=self.login.folder,
            env=self.login.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def planned_actions(self) -> dict[str, str]:
        """Return what the same command would do now, by cell."""
        plan = json.loads(self.login.ok("plan", *self.words, "--json"))
        return {row["cell"]: row["why"] for row in plan["cells"]}

    def states(self) -> dict[str, dict[str, Any]]:
        """Return the cells of `status --json` by slug."""
        where = ("--outputs", str(self.outputs))
        answer = json.loads(self.login.ok("status", self.name, *where, "--json"))
        return {cell["slug"]: cell for cell in answer["cells"]}

    @property
    def state(self) -> dict[str, Any]:
        """The state of a study of one cell."""
        (state,) = self.states().values()
        return state

    @property
    def job(self) -> str:
        """The job of a study of one cell."""
        return str(self.state["job"])

    def blocked_ranks(self, attempt: str = "") -> list[Path]:
        """Return the marker files of the waiting ranks; those of attempt `r1` are of the second."""
        return sorted(self.study.cells_folder.glob(f"*/blocked-*{attempt}-*"))

    def wait_until_blocked(self, ranks: int, attempt: str = "") -> None:
        """Wait until so many ranks wait; fail when no job is left that may start them."""
        wait_until(
            lambda: len(self.blocked_ranks(attempt)) >= ranks,
            f"{ranks} ranks of {self.name} {attempt} wait",
            has_ended=lambda: not self._has_queued_job(),
            every_s=0.5,
        )

    def release(self) -> None:
        """Let every waiting rank continue."""
        for mark in self.blocked_ranks():
            mark.unlink()

    def wait_until_finished(self) -> dict[str, dict[str, Any]]:
        """Release all ranks and wait until no cell is pending or running; return the states."""

        def over() -> bool:
            self.release()
            if self._has_queued_job():  # far cheaper to ask than `status`
                return False
            return not any(
                s["outcome"] in ("pending", "running") for s in self.states().values()
            )

        wait_until(over, f"{self.name} ends", every_s=0.5)
        return self.states()

    def _has_queued_job(self) -> bool:
        names = f"{self.study.job_name},{self.study.closing_name}"
        asked = self.rig.run("squeue", "--noheader", f"--name={names}")
        has_answered = asked.returncode == 0
        return bool(asked.stdout) or not has_answered

    def collect(self) -> None:
        self.login.ok("collect", self.name, "--outputs", str(self.outputs))

    def alive_processes(self) -> list[int]:
        """Return the pids of this study's workers, torchrun, job wrappers and srun."""
        return self.rig.alive_processes_of(f"{self.study.root}/")

    def torchrun_pid(self) -> int:
        """Return the pid of the study's only torchrun."""
        commands = {
            pid: Path(f"/proc/{pid}/cmdline").read_bytes()
            for pid in self.alive_processes()
        }
        (torchrun,) = [
            pid for pid, line in commands.items() if b"hpml_jobs.worker.agent" in line
        ]
        return torchrun

    def wrapper_pid(self) -> int:
        """Return the pid of the job's wrapper, the parent of torchrun."""
        return processes.parent_of(self.torchrun_pid()) or 0

    def step_daemon_pid(self) -> int:
        """Return the pid of the slurmstepd that runs the wrapper."""
        return processes.parent_of(self.wrapper_pid()) or 0
