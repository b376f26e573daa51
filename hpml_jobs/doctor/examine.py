"""Everything that is looked at, in the order it is told."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.core.cluster import Launcher, Rule
from hpml_jobs.core.findings import Finding, Level, ok, problem, warning
from hpml_jobs.core.workload import DATASETS
from hpml_jobs.doctor import controller, nodes
from hpml_jobs.doctor import login_node as here
from hpml_jobs.doctor import node_job as node
from hpml_jobs.doctor import sbatch_check as request
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.plan import machine
from hpml_jobs.plan.plan import Plan, make_plan
from hpml_jobs.plan.settings import Settings
from hpml_jobs.plan.sweep import Sweep, expand
from hpml_jobs.slurm import commands
from hpml_jobs.submit.batches import batches

Say = Callable[[str], None]


class Tried(NamedTuple):
    """What planning a submission came to: the plan, or why there is none."""

    plan: Plan | None
    fault: str = ""


def examine(
    words: list[str], config_dir: Path | None, *, job: bool, patience_s: float, say: Say
) -> Iterator[Finding]:
    """What a submission of these words would meet, here and (with `job`) on a node.

    Raises:
        UsageError: the words themselves are wrong.
    """
    try:
        sweep = expand(words, multirun=True, config_dir=config_dir)
    except UsageError as fault:
        if commands.has_sbatch() or not machine.cluster_sign():
            raise
        yield problem("cluster", str(fault))
        return
    tried = _try(sweep)
    problems = 0
    for found in _here(sweep, tried):
        problems += found.level is Level.PROBLEM
        yield found
    if not job or tried.plan is None:
        return
    plan, one = tried.plan, tried.plan.cells[0]
    if problems:
        yield warning("job", "not sent to look at a node", "first mend the problems above")
    elif plan.cluster.launcher is Launcher.LOCAL:
        yield from node.look_here(plan, one)
    else:
        yield from node.look(plan, one, patience_s, say)


def _try(sweep: Sweep) -> Tried:
    """Plan as a submission would; nothing is fetched, nothing sent."""
    try:
        return Tried(make_plan(sweep, fetch=False, say=lambda _: None))
    except HpmlError as fault:
        return Tried(None, str(fault))


def _here(sweep: Sweep, tried: Tried) -> Iterator[Finding]:
    """What can be told without a job."""
    settings, plan = sweep.settings[0], tried.plan
    cluster = settings.cluster
    yield _profile(sweep, settings)
    answers = cluster.launcher is Launcher.SLURM
    for look in (controller.slurm_commands, controller.controller) if answers else ():
        found = look()
        yield found
        if found.level is Level.PROBLEM:
            answers = False
            break
    if answers:
        yield from _allowed(settings, plan)
    outputs = Path(os.path.expandvars(settings.outputs)).expanduser().resolve()
    yield here.outputs(outputs, cluster)
    if plan:
        yield _data(plan)
    elif cluster.account or cluster.account_rule is not Rule.REQUIRED:  # else it is said already
        yield problem("cell", tried.fault)
    yield from here.container(cluster)
    yield from here.python(cluster)
    if answers and plan:
        yield from (request.taken(plan, batch) for batch in batches(plan, plan.cells))


def _profile(sweep: Sweep, settings: Settings) -> Finding:
    """Which profile, what chose it, and whether it is of another cluster than this one."""
    origin = sweep.origins.get("cluster", "the command line")
    cluster = settings.cluster
    why = sweep.detected or f"cluster={cluster.name} ({origin})"
    if not cluster.known_as or not commands.has_sbatch():
        return ok("cluster", why)
    name = commands.limits().get("ClusterName", "")
    if name and name.lower() not in cluster.known_as:
        seen = f"{why}, but SLURM's ClusterName is {name}"
        return warning("cluster", seen, "cluster=auto chooses the profile that is right here")
    return ok("cluster", why)


def _allowed(settings: Settings, plan: Plan | None) -> Iterator[Finding]:
    """What SLURM has, and allows this person."""
    cluster = settings.cluster
    yield controller.accounting()
    known = controller.associations()
    yield controller.limits(cluster, known, len(plan.cells) if plan else 1)
    yield controller.account(cluster, known)
    kind = plan.cells[0].shape.gpu_type if plan else settings.gpu_type
    yield from nodes.findings(cluster, kind)


def _data(plan: Plan) -> Finding:
    """Whether the data sets of all workloads are there."""
    file = plan.cells[0].file
    workload = file.cell.workload
    needed = {(one.cell.workload, one.file.data_root): None for one in plan.cells}
    for each, root in needed:
        dataset = DATASETS.get(each.data)
        if dataset is not None and dataset.is_missing(Path(root)):
            remedy = f"hpml-jobs fetch workload={each.name} (submission does it too)"
            return warning("data", f"{dataset.title} is not in {root}", remedy)
    dataset = DATASETS.get(workload.data)
    where = f" in {file.data_root}" if dataset is not None and dataset.on_disk else ""
    return ok("data", f"workload={workload.name}: {workload.images:,} training images{where}")
