"""Validation of the measurement: a small study, and a report of its checks for a bug report."""

import getpass
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import Level
from hpml_jobs.core.cluster import Launcher
from hpml_jobs.core.errors import refuse_below
from hpml_jobs.core.record import Facts, Record
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.text import VERSION, counted
from hpml_jobs.doctor.node_job import STUDY
from hpml_jobs.plan.cells import Plan, PlannedCell
from hpml_jobs.plan.resolve import make_plan
from hpml_jobs.plan.sweep import expand
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.commands import ask_slurm
from hpml_jobs.status.states import cell_states
from hpml_jobs.study.snapshot import CellState

BATCH = 64
CPU_ITERATIONS = 20
"""Iterations of an epoch with device=cpu: few enough for a minute."""

GPU_ITERATIONS = 800
"""Iterations of an epoch on GPUs: about 5 s on the fastest, whose host launches one in 6 ms, and so
long enough that starting it is less than a check's limit; about 20 s on a V100."""

STRATEGIES = {Device.CPU: "ddp,allreduce_flat", Device.CUDA: "ddp,allreduce_flat,dp"}
WORST_FIRST = (Level.FAIL, Level.WARN, Level.PASS)
WORKLOADS = {Device.CPU: "digits", Device.CUDA: "synthetic"}


def self_test_plan(
    words: list[str], gpus: int, config_dir: Path | None, notify: Callable[[str], None]
) -> Plan:
    """Plan the validation study: overlapping and single all-reduce; with GPUs also dp.

    On one GPU: the plain loop, and ddp and dp with one replica.

    Raises:
        UsageError: the words are wrong, or cannot be measured here.
    """
    refuse_below(1, "--gpus", gpus)
    common = {"study": STUDY, "gpus": str(gpus), "protocol": "full", "minutes": "15"}
    common |= {"probe_s": "5", "rerun": "true", "batch": str(BATCH)}
    trial_words = _with_defaults(words, common | {"workload": "synthetic"})
    trial_sweep = expand(trial_words, multirun=True, config_dir=config_dir)
    # The plan repeats what it says.
    trial = make_plan(trial_sweep, fetch=False, notify=lambda _: None)
    cell = trial.cells[0].cell
    defaults = common | {
        "workload": WORKLOADS[cell.device],
        "strategy": STRATEGIES[cell.device],
    }
    if cell.device is Device.CPU:
        defaults["data.limit"] = str(CPU_ITERATIONS * BATCH * gpus)
    else:
        defaults["workload.images"] = str(GPU_ITERATIONS * BATCH * gpus)
    is_one_gpu = gpus == 1 and cell.device is Device.CUDA
    adds_dp = is_one_gpu and "strategy" not in _keys(words)
    if adds_dp:
        defaults |= {"strategy": "ddp"}
    sweep = expand(
        _with_defaults(words, defaults), multirun=True, config_dir=config_dir
    )
    plan = make_plan(sweep, notify=notify)
    if adds_dp:
        added = (
            _on_one_gpu(plan, strategy) for strategy in (Strategy.DDP, Strategy.DP)
        )
        plan = plan._replace(cells=[*plan.cells, *added])
    return plan


def _on_one_gpu(plan: Plan, strategy: Strategy) -> PlannedCell:
    """Return the first cell of a plan with a strategy, which a submission leaves out on one GPU.

    It shows whether DDP and DataParallel work, and how the replicas' threads of the latter start.
    """
    first = plan.cells[0]
    cell = msgspec.structs.replace(first.cell, strategy=strategy)
    file = msgspec.structs.replace(first.file, cell=cell)
    return PlannedCell(file, first.shape, cell.slug)


def _with_defaults(words: list[str], defaults: dict[str, str]) -> list[str]:
    """Return the words with defaults for the keys that they do not give."""
    keys = _keys(words)
    missing = [f"{key}={value}" for key, value in defaults.items() if key not in keys]
    return [*missing, *words]


def _keys(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words}


class SelfTestResult(NamedTuple):
    """The states of the cells, and a text on them without names, accounts or paths."""

    cells: list[CellState]
    block: str

    @property
    def is_passed(self) -> bool:
        """Whether every cell was measured and no check failed."""
        return (
            _measured(self.cells) == len(self.cells)
            and not _levels(self.cells)[Level.FAIL]
        )


def _measured(cells: Iterable[CellState]) -> int:
    return sum(state.outcome is Outcome.OK for state in cells)


def _levels(cells: Iterable[CellState]) -> Counter[Level]:
    """Return how many checks have each level."""
    return Counter(result.level for state in cells for result in state.checks)


def self_test_result(plan: Plan, gpus: int) -> SelfTestResult:
    """Read the study's cells and report their checks."""
    slugs = {cell.slug for cell in plan.cells}
    jobs = plan.study.history().jobs
    cells = [
        _of_this_run(plan, state, jobs.get(state.slug))
        for state in cell_states(plan.study, with_checks=True)
        if state.slug in slugs
    ]
    records = {state.slug: _record(plan, state) for state in cells}
    lines = [f"==== hpml_jobs {VERSION}: doctor --gpus {gpus} ===="]
    lines += _environment(plan, [*filter(None, records.values())])
    for state in cells:
        lines += ["", *_cell(state, records[state.slug])]
    levels = _levels(cells)
    totals = ", ".join(f"{levels[level]} {level.value}" for level in Level)
    of_all = f"{_measured(cells)} of {counted(len(cells), 'cell')} measured"
    lines += ["", f"{of_all}; checks: {totals}"]
    return SelfTestResult(
        cells, _anonymous("\n".join(lines), _private_words(plan, cells))
    )


def _record(plan: Plan, state: CellState) -> Record | None:
    return plan.study.cell(state.slug).read_record() if state.recorded else None


def _of_this_run(plan: Plan, state: CellState, job: str | None) -> CellState:
    """Return the state of this run; a record of an earlier run does not count."""
    record = _record(plan, state)
    if record is None or record.attempt.job == job:
        return state
    outcome, reason = Outcome.MISSING, "there is only the record of an earlier run"
    end = plan.study.cell(state.slug).last_end()
    if end is not None and end.attempt.job == job:
        outcome, reason = end.outcome, end.reason or ""
    return CellState(slug=state.slug, outcome=outcome, job=job, reason=reason)


def _environment(plan: Plan, records: list[Record]) -> list[str]:
    """Return lines on the cluster, the devices and the software."""
    version = "without SLURM"
    if plan.cluster.launcher is Launcher.SLURM:
        version = ask_slurm("sbatch", "--version").text.strip()
    shapes = "; ".join(dict.fromkeys(str(cell.shape) for cell in plan.cells))
    lines = [f"cluster   {plan.cluster.name}, {version}: {shapes}"]
    facts = next((record.facts for record in records if record.facts), None)
    if facts is None:
        return lines
    devices = Counter(chain(*(rank.devices for rank in records[0].ranks)))
    names = ", ".join(f"{count} x {name}" for name, count in devices.items())
    return [
        *lines,
        f"devices   {names}; {_drivers(facts)}",
        f"software  {_software(facts)}",
    ]


def _drivers(facts: Facts) -> str:
    parts = {
        "driver": facts.driver,
        "built for CUDA": facts.cuda,
        "cuDNN": facts.cudnn,
        "NCCL": facts.nccl,
        "backend": facts.backend,
        "set": ", ".join(facts.nccl_environment) or None,
        "CPU": facts.cpu_model or None,
    }
    return ", ".join(
        f"{name} {value}" for name, value in parts.items() if value is not None
    )


def _software(facts: Facts) -> str:
    dirty = ", changed" if facts.dirty else ""
    commit = f", commit {facts.commit[:12]}{dirty}" if facts.commit else ""
    versions = (
        f"Python {facts.python}, torch {facts.torch}, torchvision {facts.torchvision}"
    )
    return f"{versions}, {facts.os}{commit}"


def _cell(state: CellState, record: Record | None) -> list[str]:
    """Return lines on a cell: its times, then every check, the most serious first."""
    title = f"{state.slug}: {state.outcome.value} {state.reason}".rstrip()
    if record is None or not record.ranks:
        return [title]
    times = {
        "epoch": record.epoch_s,
        "compute": record.compute_s,
        "communication": record.comm_s,
        "exposed communication": record.comm_exposed_s,
        "total communication": record.comm_total_s,
    }
    durations = ", ".join(
        f"{name} {value:.4g} s" for name, value in times.items() if value is not None
    )
    lines = [f"{title}, {durations}"]
    for result in sorted(
        state.checks, key=lambda result: WORST_FIRST.index(result.level)
    ):
        lines.append(f"  {result.level.value:4}  {result.check:17} {result.reason}")
    return lines


def _private_words(plan: Plan, cells: Iterable[CellState]) -> dict[str, str]:
    """Return words that identify a user or a place, with their replacements."""
    words: dict[str, str] = {}
    if plan.cluster.launcher is Launcher.SLURM:
        words |= {node.name: "NODE" for node in commands.inventory()}
    for state in cells:
        words |= dict.fromkeys(state.node.split(","), "NODE")
    words |= {
        str(plan.study.root.parent): "OUTPUTS",
        os.environ.get("HOME", ""): "HOME",
    }
    words |= {getpass.getuser(): "USER", plan.cluster.account or "": "ACCOUNT"}
    words.pop("", None)
    return words


_FOLDERS = re.compile(r"(?<![\w/…])(?:/[\w.@+~-]+)+/")


def _anonymous(text: str, private: dict[str, str]) -> str:
    """Replace private words, and keep only the last part of every path.

    >>> _anonymous("gr001: no /scratch/me/x.py, 5 GB/s", {"gr001": "NODE"})
    'NODE: no …/x.py, 5 GB/s'
    """
    longest_first = sorted(private, key=len, reverse=True)
    words = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
    return _FOLDERS.sub("…/", words.sub(lambda match: private[match[0]], text))
