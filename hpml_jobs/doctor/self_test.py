"""The measurement proved on real hardware: a small study, and what its checks say, to paste."""

import getpass
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from hpml_jobs import __version__
from hpml_jobs.checks import Level
from hpml_jobs.core.cell import Device
from hpml_jobs.core.cluster import Launcher
from hpml_jobs.core.record import Facts, Record
from hpml_jobs.core.text import counted
from hpml_jobs.doctor.node_job import STUDY
from hpml_jobs.errors import UsageError
from hpml_jobs.plan.plan import Plan, make_plan
from hpml_jobs.plan.sweep import expand
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.commands import ask_slurm
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.status.states import cell_states
from hpml_jobs.study.cell_state import CellState

BATCH = 64
ITERATIONS = {Device.CPU: 20, Device.CUDA: 60}
"""Of an epoch: enough that its start and its end weigh little, few enough for a minute."""

STRATEGIES = {
    Device.CPU: "ddp,allreduce_flat",
    Device.CUDA: "ddp,allreduce_flat,dp",
}
WORST_FIRST = (Level.FAIL, Level.WARN, Level.PASS)
WORKLOADS = {Device.CPU: "digits", Device.CUDA: "synthetic"}


def plan_of(
    words: list[str], gpus: int, config_dir: Path | None, say: Callable[[str], None]
) -> Plan:
    """The study that proves: what overlaps, what goes in one message, and on GPUs dp's traffic.

    Raises:
        UsageError: the words are wrong, or cannot be measured here.
    """
    if gpus < 1:
        raise UsageError(f"--gpus {gpus}: must be 1 or more")
    common = {"study": STUDY, "gpus": str(gpus), "protocol": "full", "minutes": "15"}
    common |= {"probe_s": "5", "rerun": "true", "batch": str(BATCH)}
    first = _beside(words, common | {"workload": "synthetic"})
    looked = expand(first, multirun=True, config_dir=config_dir)
    device = make_plan(looked, fetch=False, say=_hear_nothing).cells[0].cell.device
    own = {"workload": WORKLOADS[device], "strategy": STRATEGIES[device]}
    own["data.limit"] = str(ITERATIONS[device] * BATCH * gpus)
    return make_plan(
        expand(_beside(words, common | own), multirun=True, config_dir=config_dir), say=say
    )


def _beside(words: list[str], ours: dict[str, str]) -> list[str]:
    """Our words, but where the person's own give the same key."""
    given = {word.partition("=")[0] for word in words}
    return [*(f"{key}={value}" for key, value in ours.items() if key not in given), *words]


def _hear_nothing(_sentence: str) -> None:
    """What is said here is said again by the plan that counts."""


class Proof(NamedTuple):
    """Where the cells stand, and one plain text about them without names, accounts or paths."""

    cells: list[CellState]
    block: str

    @property
    def holds(self) -> bool:
        """Whether every cell was measured and no check failed."""
        levels = {result.level for state in self.cells for result in state.checks}
        return all(s.outcome is Outcome.OK for s in self.cells) and Level.FAIL not in levels


def proof_of(plan: Plan, gpus: int) -> Proof:
    """Judge the study's cells."""
    slugs, jobs = {one.cell.slug for one in plan.cells}, plan.study.history().jobs
    cells = [
        _of_this_run(plan, state, jobs.get(state.slug))
        for state in cell_states(plan.study, with_checks=True)
        if state.slug in slugs
    ]
    records = {s.slug: plan.study.cell(s.slug).read_record() for s in cells if s.recorded}
    lines = [f"==== hpml_jobs {__version__}: doctor --gpus {gpus} ===="]
    lines += _about(plan, [record for record in records.values() if record])
    for state in cells:
        lines += ["", *_cell(state, records.get(state.slug))]
    levels = Counter(result.level for state in cells for result in state.checks)
    told = ", ".join(f"{levels[level]} {level.value}" for level in Level)
    measured = sum(state.outcome is Outcome.OK for state in cells)
    lines += ["", f"{measured} of {counted(len(cells), 'cell')} measured; checks: {told}"]
    return Proof(cells, _anonymous("\n".join(lines), _private(plan, cells)))


def _of_this_run(plan: Plan, state: CellState, job: str | None) -> CellState:
    """The state, but for a record of an earlier run: it proves nothing of this one."""
    folder = plan.study.cell(state.slug)
    record = folder.read_record() if state.recorded else None
    if record is None or record.attempt.job == job:
        return state
    end = folder.last_end()
    known = end is not None and end.attempt.job == job
    outcome = end.outcome if end and known else Outcome.MISSING
    reason = (end.reason or "") if end and known else "only an earlier run's record is there"
    return CellState(slug=state.slug, outcome=outcome, job=job, reason=reason)


def _about(plan: Plan, records: list[Record]) -> list[str]:
    """What was measured with: the cluster, the devices, the software."""
    slurm = plan.cluster.launcher is Launcher.SLURM
    by = ask_slurm("sbatch", "--version").text.strip() if slurm else "without SLURM"
    shapes = "; ".join(dict.fromkeys(str(one.shape) for one in plan.cells))
    lines = [f"cluster   {plan.cluster.name}, {by}: {shapes}"]
    facts = next((record.facts for record in records if record.facts), None)
    if facts is None:
        return lines
    devices = Counter(name for rank in records[0].ranks for name in rank.devices)
    named = ", ".join(f"{count} x {name}" for name, count in devices.items())
    return [*lines, f"devices   {named}; {_drivers(facts)}", f"software  {_software(facts)}"]


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
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)


def _software(facts: Facts) -> str:
    dirty = ", changed" if facts.dirty else ""
    commit = f", commit {facts.commit[:12]}{dirty}" if facts.commit else ""
    versions = f"Python {facts.python}, torch {facts.torch}, torchvision {facts.torchvision}"
    return f"{versions}, {facts.os}{commit}"


def _cell(state: CellState, record: Record | None) -> list[str]:
    """One cell: its times, then every check with its figures, the bad ones first."""
    title = f"{state.slug}: {state.outcome.value} {state.reason}".rstrip()
    if record is None or not record.ranks:
        return [title]
    times = {
        "epoch": record.epoch_s,
        "compute": record.compute_s,
        "communication exposed": record.comm_exposed_s,
        "in all": record.comm_total_s,
    }
    told = ", ".join(f"{name} {value:.4g} s" for name, value in times.items() if value is not None)
    checks = [v for level in WORST_FIRST for v in state.checks if v.level is level]
    return [
        f"{title}, {told}",
        *(f"  {v.level.value:4}  {v.check:17} {v.reason}" for v in checks),
    ]


def _private(plan: Plan, cells: Iterable[CellState]) -> dict[str, str]:
    """What says whose it is or where, with what stands for it."""
    slurm = plan.cluster.launcher is Launcher.SLURM
    found = dict.fromkeys((node.name for node in (commands.inventory() if slurm else ())), "NODE")
    found |= {host: "NODE" for state in cells for host in state.node.split(",")}
    found |= {str(plan.study.root.parent): "OUTPUTS", str(Path.home()): "HOME"}
    found |= {getpass.getuser(): "USER", plan.cluster.account or "": "ACCOUNT"}
    return {word: name for word, name in found.items() if word}


_FOLDERS = re.compile(r"(?<![\w/…])(?:/[\w.@+~-]+)+/")


def _anonymous(text: str, private: dict[str, str]) -> str:
    """A text without those words, and of every path only its end.

    >>> _anonymous("gr001: no /scratch/me/x.py, 5 GB/s", {"gr001": "NODE"})
    'NODE: no …/x.py, 5 GB/s'
    """
    longest_first = sorted(private, key=len, reverse=True)
    known = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
    return _FOLDERS.sub("…/", known.sub(lambda found: private[found[0]], text))
