"""A study that a fault is to hit: sent, looked at, held, and let go on."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpml_jobs.study.study import Study
from tests.conftest import Program
from tests.journeys.conftest import HERE
from tests.rig import Rig, processes

OWN = ("workload=custom", "workload.data=held:dataset", "protocol=lab", "cluster.isolate=off")
PATIENCE_S = 240


def wait_until(true: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.3)


def stand_in(folder: Path, lines: str) -> None:
    """A shell script named sbatch, for the head of PATH, that does more than sbatch."""
    folder.mkdir()
    script = folder / "sbatch"
    script.write_text(f"#!/bin/sh\n{lines}\n")
    script.chmod(0o755)


class Case:
    """One study on a test SLURM. Cells with `model="Held"` wait in their first iteration."""

    def __init__(
        self, desk: Program, rig: Rig, name: str, *words: str, model: str = "build"
    ) -> None:
        self.desk, self.rig, self.name = desk, rig, name
        model_word = model if ":" in model else f"blocking_models:{model}"
        common = (f"study={name}", "cluster=rig", f"workload.model={model_word}")
        given = {word.partition("=")[0] for word in words}
        own = [word for word in OWN if word.partition("=")[0] not in given]
        self.words = [*words, *own, *common, "--config-dir", str(HERE / "conf")]
        outputs = [word.partition("=")[2] for word in words if word.startswith("outputs=")]
        self.outputs = Path(outputs[0] if outputs else desk.folder / "outputs")
        self.study = Study(self.outputs / name)

    def send(self) -> "Case":
        """Send it as a person does; SLURM must take it."""
        self.desk.ok(*self.words)
        return self

    def begin(self, **environment: str) -> subprocess.Popen[str]:
        """Begin to send it, and go on."""
        command = [self.desk.python, "-m", "hpml_jobs", *self.words]
        return subprocess.Popen(
            command,
            cwd=self.desk.folder,
            env=self.desk.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def asked(self) -> dict[str, str]:
        """Every cell of the command, and what the same command would do about it now."""
        answer = json.loads(self.desk.ok("plan", *self.words, "--json"))
        return {row["cell"]: row["why"] for row in answer["cells"]}

    def states(self) -> dict[str, dict[str, Any]]:
        """`status --json` by cell."""
        where = ("--outputs", str(self.outputs))
        answer = json.loads(self.desk.ok("status", self.name, *where, "--json"))
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

    def held(self) -> list[Path]:
        """The marks of ranks that wait."""
        return sorted(self.study.cells_folder.glob("*/held-*"))

    def wait_held(self, ranks: int) -> None:
        wait_until(lambda: len(self.held()) >= ranks, f"{ranks} ranks of {self.name} wait")

    def let_go(self) -> None:
        """Let every rank that waits go on."""
        for mark in self.held():
            mark.unlink()

    def finish(self) -> dict[str, dict[str, Any]]:
        """Wait until nothing is under way; ranks that wait go on. The states by cell."""

        def over() -> bool:
            self.let_go()
            return not any(s["outcome"] in ("pending", "running") for s in self.states().values())

        wait_until(over, f"{self.name} ends")
        return self.states()

    def collect(self) -> None:
        self.desk.ok("collect", self.name, "--outputs", str(self.outputs))

    def alive(self) -> list[int]:
        """Processes that work for this study: workers, torchrun, the job's wrapper, srun."""
        return self.rig.alive_processes_of(f"{self.study.root}/")

    def torchrun(self) -> int:
        """The pid of the one torchrun that works for this study."""
        told = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.alive()}
        (found,) = [pid for pid, words in told.items() if b"torch.distributed.run" in words]
        return found

    def wrapper(self) -> int:
        """The pid of the job's wrapper, torchrun's parent."""
        return processes.parent_of(self.torchrun()) or 0

    def step(self) -> int:
        """The pid of the slurmstepd under which the wrapper runs."""
        return processes.parent_of(self.wrapper()) or 0
