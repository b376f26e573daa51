"""Everything that is looked at, in the order it is told."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from hpml_jobs.checkup import Finding, Level, ok, problem, warning
from hpml_jobs.cluster import Launcher
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.submit import machine
from hpml_jobs.submit.batches import batches
from hpml_jobs.submit.cells import Plan, make_plan
from hpml_jobs.submit.doctor import controller, here, node, nodes, request
from hpml_jobs.submit.settings import Settings
from hpml_jobs.submit.sweep import Sweep, expand

Say = Callable[[str], None]


def examine(
    words: list[str], config_dir: Path | None, *, job: bool, patience_s: float, say: Say
) -> Iterator[Finding]:
    """What a submission of these words would meet, here and (with `job`) on a node.

    Raises:
        UsageError: the words themselves are wrong.
    """
    try:
        sweep = expand(words, multirun=False, config_dir=config_dir)
    except UsageError as fault:
        if machine.has_sbatch() or not machine.cluster_sign():
            raise
        yield problem("cluster", str(fault))
        return
    settings = sweep.settings[0]
    slurm = settings.cluster.launcher is Launcher.SLURM
    yield ok("cluster", _why(sweep, settings))
    plan, said, fault_text = _plan(sweep)
    if slurm:
        yield from _slurm(settings, plan)
    outputs = Path(os.path.expandvars(settings.outputs)).expanduser().resolve()
    yield here.outputs(outputs, settings.cluster)
    if plan is None:
        yield problem("cell", fault_text)
    else:
        yield _data(plan, said)
    yield from here.container(settings.cluster)
    yield from here.python(settings.cluster)
    if plan is None:
        return
    taken = True
    if slurm and machine.has_sbatch():
        for batch in batches(plan, plan.cells):
            found = request.taken(plan, batch)
            taken = taken and found.level is not Level.PROBLEM
            yield found
    if job and not slurm:
        yield from node.look_here(plan, plan.cells[0])
    elif job and taken and machine.has_sbatch():
        yield from node.look(plan, plan.cells[0], patience_s, say)


def _why(sweep: Sweep, settings: Settings) -> str:
    """Which profile, and what chose it."""
    detected = [line for line in sweep.said if "cluster=" in line]
    origin = sweep.origins.get("cluster", "the command line")
    return detected[0] if detected else f"cluster={settings.cluster.name} ({origin})"


def _plan(sweep: Sweep) -> tuple[Plan | None, list[str], str]:
    """The plan with what was said on the way, or why there is none."""
    said: list[str] = []
    try:
        return make_plan(sweep, fetch=False, say=said.append), said, ""
    except HpmlError as fault:
        return None, said, str(fault)


def _slurm(settings: Settings, plan: Plan | None) -> Iterator[Finding]:
    """What SLURM says; nothing more where its commands or its controller are missing."""
    cluster = settings.cluster
    for look in (controller.commands, controller.controller):
        found = look()
        yield found
        if found.level is Level.PROBLEM:
            return
    yield controller.accounting()
    known = controller.associations()
    yield controller.limits(cluster, known, len(plan.cells) if plan else 1)
    yield controller.account(cluster, known)
    kind = plan.cells[0].shape.gpu_type if plan else settings.gpu_type
    yield from nodes.findings(cluster, kind)


def _data(plan: Plan, said: list[str]) -> Finding:
    """Whether the workload's data set is there."""
    file = plan.cells[0].file
    workload = file.cell.workload
    images = f"{workload.images:,} training images" if workload.images else "no images counted"
    missing = [line for line in said if "would be fetched" in line]
    if missing:
        remedy = f"hpml-jobs fetch workload={workload.name} (submission does it too)"
        return warning("data", missing[0].partition(":")[0], remedy)
    where = f" in {file.data_root}" if workload.data in ("cifar10", "folder") else ""
    return ok("data", f"workload={workload.name}: {images}{where}")
