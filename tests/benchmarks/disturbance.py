"""Detection of disturbed epochs: real stops, CPU hogs and slow iterations, and false alarms.

    python tests/benchmarks/disturbance.py [--epochs 1 10] [--iterations 10 100 1000]
        [--pauses 0.1 1 3] [--kinds stop slow hogs] [--quiet 100] [--repeats 1]

A process trains epochs of a given length and number of iterations, each a fixed amount of work, as
the timed epoch of a cell runs. Per case this script disturbs one epoch: `stop` sends SIGSTOP, and
SIGCONT after the pause; `slow` lets one iteration sleep; `hogs` runs one busy process per CPU for a
third of the epoch. The table shows which check found it. Then `--quiet` epochs run undisturbed: all
that the checks find in them is a false alarm, unless the machine is busy or its hypervisor is. It
takes about twelve minutes; run it on a quiet machine, or the last count includes what others do.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from hpml_jobs.core.cell import Cell, Outcome
from hpml_jobs.core.check_result import Level
from hpml_jobs.core.measurements import Epoch, Role
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Attempt, Record
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.workload import Workload
from hpml_jobs.results.checks.disturbed import epochs_disturbed
from hpml_jobs.results.disturbance import host_cpus, outside_causes
from hpml_jobs.worker.epochs import train_epoch
from hpml_jobs.worker.instruments.facts import affinity
from hpml_jobs.worker.process_group import read_placement
from hpml_jobs.worker.strategies import STRATEGIES
from hpml_jobs.worker.training import make_training

BATCH = 4
CALIBRATION = 200
QUIET_STEAL = 0.01
"""Share of the CPU time in demand that a hypervisor may withhold in a quiet epoch."""

TICK_S = 0.01
"""Resolution of /proc/stat."""

BUSY = "while True: pass"


class FixedWork(nn.Module):
    """Multiplies matrices a fixed number of times per forward, and sleeps once on request."""

    rounds = CALIBRATION
    sleep_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3 * 32 * 32, 10)
        self.matrix = torch.randn(64, 64)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores of 10 classes."""
        product = self.matrix
        for _ in range(self.rounds):
            product = product @ self.matrix / 64
        if self.sleep_s:
            time.sleep(self.sleep_s)
            self.sleep_s = 0.0
        scores: Tensor = self.layer(images.flatten(1)) + 0 * product.mean()
        return scores


class Case(NamedTuple):
    """One epoch to disturb: how, and for how long."""

    kind: str
    pause_s: float


class Finding(NamedTuple):
    """What the checks said of one epoch, and the kinds of outside causes."""

    disturbed: str
    epoch_s: float
    stolen_share: float  # of the CPU time in demand
    causes: tuple[str, ...]

    @property
    def names(self) -> str:
        """The check, if it warned, with the causes."""
        return f"disturbed ({', '.join(self.causes)})" if self.disturbed else ""


# ---- the process that trains ----


def train(epoch_s: float, iterations: int) -> None:
    """Calibrate, then train an epoch for every line on stdin: the seconds to sleep in one step."""
    torch.set_num_threads(1)
    workload = Workload(
        name="fixed",
        model="disturbance:FixedWork",
        data="synthetic",
        images=BATCH * iterations,
    )
    cell = Cell(
        gpus=1,
        batch=BATCH,
        strategy=Strategy.SINGLE,
        workload=workload,
        device=Device.CPU,
        loader_workers=1,
    )
    strategy = STRATEGIES[cell.strategy](
        cell, read_placement(cell), (torch.device("cpu"),)
    )
    training = make_training(cell, strategy, Path())
    # the best of three: a calibration beside other load would make epochs too short
    best = min(_step_s(training, number) for number in range(3))
    training.replica.rounds = max(1, round(CALIBRATION * epoch_s / iterations / best))
    train_epoch(training, 3, Role.WARMUP)
    print("ready", flush=True)
    for number, line in enumerate(sys.stdin, 4):
        sleep_s = float(line)
        if sleep_s:
            sleeper = _sleeper(iterations // 2, sleep_s)
            hook = training.replica.register_forward_pre_hook(sleeper)
        epoch = train_epoch(training, number, Role.TIMED).epoch
        if sleep_s:
            hook.remove()
        record = Record(
            cell=cell,
            slug=cell.slug,
            attempt=Attempt(id="benchmark", job="benchmark"),
            outcome=Outcome.OK,
            ranks=(_rank(epoch),),
        )
        print(msgspec.json.encode(record).decode(), flush=True)


def _step_s(training: Any, number: int) -> float:
    steps = train_epoch(training, number, Role.WARMUP).epoch.steps
    return steps.median_s if steps else 1.0


def _sleeper(iteration: int, sleep_s: float) -> Any:
    calls = iter(range(sys.maxsize))

    def sleep(model: nn.Module, *_: object) -> None:
        if next(calls) == iteration:
            model.sleep_s = sleep_s

    return sleep


def _rank(epoch: Epoch) -> Rank:
    return Rank(
        rank=0,
        local_rank=0,
        host="here",
        devices=("cpu",),
        affinity=affinity(),
        threads=1,
        loader_workers=1,
        epochs=(epoch,),
    )


# ---- the process that disturbs ----


class Trainer:
    """The training process: one epoch at a time, disturbed or not."""

    def __init__(self, epoch_s: float, iterations: int) -> None:
        self.epoch_s = epoch_s
        words = ["--train", "--epochs", str(epoch_s), "--iterations", str(iterations)]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None or stdout.readline() != "ready\n":
            raise RuntimeError("the training process did not start")
        self._stdin, self._stdout = stdin, stdout

    def close(self) -> None:
        """End the training process."""
        self._stdin.close()
        self._process.wait()

    def epoch(self, case: Case | None = None) -> Finding:
        """Run one epoch and return what the checks say of it."""
        sleep_s = case.pause_s if case and case.kind == "slow" else 0.0
        self._stdin.write(f"{sleep_s}\n")
        self._stdin.flush()
        if case and case.kind == "stop":
            self._stop(case.pause_s)
        if case and case.kind == "hogs":
            self._run_hogs(case.pause_s)
        return _judge(msgspec.json.decode(self._stdout.readline(), type=Record))

    def _stop(self, pause_s: float) -> None:
        time.sleep(self.epoch_s * random.uniform(0.3, 0.6))
        os.kill(self._process.pid, signal.SIGSTOP)
        time.sleep(pause_s)
        os.kill(self._process.pid, signal.SIGCONT)

    def _run_hogs(self, seconds: float) -> None:
        time.sleep(self.epoch_s * 0.3)
        cpus = os.sched_getaffinity(0)
        hogs = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in cpus]
        time.sleep(seconds)
        for hog in hogs:
            hog.kill()
            hog.wait()


def _judge(record: Record) -> Finding:
    results = epochs_disturbed(record)
    reasons = [r.reason for r in results if r.level is not Level.PASS]
    (host,) = host_cpus(record, Role.TIMED)
    stolen_s = host.stolen_s or 0.0
    return Finding(
        "; ".join(reasons),
        record.epoch_s,
        stolen_s / (stolen_s + (host.busy_s or 0.0)) if stolen_s > TICK_S else 0.0,
        tuple(cause.kind.value for cause in outside_causes(record, Role.TIMED)),
    )


def _cases(kinds: list[str], pauses: list[float], epoch_s: float) -> Iterator[Case]:
    for kind in kinds:
        if kind == "hogs":
            yield Case(kind, epoch_s / 3)
        else:
            yield from (Case(kind, pause_s) for pause_s in pauses)


def main() -> None:
    """Print the table of detections, then the count of false alarms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--iterations", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--pauses", type=float, nargs="+", default=[0.1, 1.0, 3.0])
    parser.add_argument("--kinds", nargs="+", default=["stop", "slow", "hogs"])
    parser.add_argument(
        "--quiet", type=int, default=100, help="undisturbed epochs, of the first"
    )
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.epochs[0], options.iterations[0])
        return
    print(f"{len(os.sched_getaffinity(0))} CPUs; {options.repeats} epoch(s) per case")
    print(
        f"{'kind':6} {'epoch s':>8} {'iterations':>10} {'for s':>6} {'share %':>8}  found by"
    )
    for epoch_s in options.epochs:
        for iterations in options.iterations:
            trainer = Trainer(epoch_s, iterations)
            for case in _cases(options.kinds, options.pauses, epoch_s):
                findings = [trainer.epoch(case) for _ in range(options.repeats)]
                names = Counter(finding.names or "-" for finding in findings)
                counts = ", ".join(
                    f"{name} {n}/{len(findings)}" for name, n in names.items()
                )
                share = 100 * case.pause_s / (epoch_s + case.pause_s)
                print(
                    f"{case.kind:6} {epoch_s:8g} {iterations:10} {case.pause_s:6.2f} {share:8.1f}  "
                    f"{counts}",
                    flush=True,
                )
            trainer.close()
    print_false_alarms(options.epochs[0], options.iterations, options.quiet)


def print_false_alarms(epoch_s: float, iterations: list[int], quiet: int) -> None:
    """Run epochs that nothing of this script disturbs, and print what was found in them.

    An epoch is quiet if the hypervisor withheld no more than 1 % of its CPU time in demand, by
    /proc/stat. Epochs run until there are so many quiet ones, at most four times as many. In the
    others a warning is right: their length beside that of quiet ones is printed.
    """
    counts: Counter[str] = Counter()
    reasons: list[str] = []
    excesses: list[float] = []
    for number in iterations:
        trainer = Trainer(epoch_s, number)
        wanted = -(-quiet // len(iterations))
        findings: list[Finding] = []
        while sum(map(_is_quiet, findings)) < wanted and len(findings) < 4 * wanted:
            findings.append(trainer.epoch())
        trainer.close()
        calm = [finding for finding in findings if _is_quiet(finding)]
        warned = [
            finding for finding in findings if not _is_quiet(finding) and finding.names
        ]
        if calm:
            typical_s = median(finding.epoch_s for finding in calm)
            excesses += [finding.epoch_s / typical_s - 1 for finding in warned]
        counts["all"] += len(findings)
        counts["quiet"] += len(calm)
        alarms = [finding.disturbed for finding in calm if finding.disturbed]
        counts["disturbed"] += len(alarms)
        reasons += alarms
    print(
        f"{counts['all']} undisturbed epochs of {epoch_s:g} s, {counts['quiet']} of them quiet"
    )
    print(f"disturbed: {counts['disturbed']} of the quiet epochs")
    print(*(f"  {reason}" for reason in reasons[:10]), sep="\n")
    if excesses:
        print(
            f"{len(excesses)} epochs warned of in which the hypervisor withheld CPU time: "
            f"{median(excesses):+.0%} longer than quiet ones (median)"
        )


def _is_quiet(finding: Finding) -> bool:
    return finding.stolen_share <= QUIET_STEAL


if __name__ == "__main__":
    main()
