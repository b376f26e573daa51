"""Checks whether this machine can submit a study, in the order in which they are reported."""

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

from hpml_jobs.core.answers import Finding, Severity, ok, problem, warning
from hpml_jobs.core.built_in import DATASETS
from hpml_jobs.core.cluster import Cluster, Launcher, Rule
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.paths import resolve_path
from hpml_jobs.doctor import controller, node_job
from hpml_jobs.doctor.before_queue import (
    associations,
    check_account,
    check_container,
    check_followup,
    check_python,
    check_qos,
    check_request,
)
from hpml_jobs.plan import machine
from hpml_jobs.plan.cells import Plan
from hpml_jobs.plan.resolve import make_plan
from hpml_jobs.plan.settings import Sweep
from hpml_jobs.plan.sweep import expand
from hpml_jobs.slurm import commands
from hpml_jobs.submit.job_requests import lacks_partition, make_requests
from hpml_jobs.submit.ssh import check_hosts

Notify = Callable[[str], None]


def examine(
    words: list[str],
    config_dir: Path | None,
    *,
    job: bool,
    patience_s: float,
    notify: Notify,
) -> Iterator[Finding]:
    """Yield findings on a submission of these words, here and (with `job`) on a node.

    Raises:
        UsageError: the words are wrong.
    """
    try:
        sweep = expand(words, multirun=True, config_dir=config_dir)
    except UsageError as error:
        if commands.has_sbatch() or not machine.cluster_sign():
            raise
        yield problem("cluster", str(error))
        return
    plan, fault = _plan(sweep)
    problems = 0
    for finding in _login_node_findings(sweep, plan, fault):
        problems += finding.level is Severity.PROBLEM
        yield finding
    if not job or plan is None:
        return
    if problems:
        yield warning(
            "job", "diagnostic job not submitted", "fix the problems above first"
        )
        return
    if plan.cluster.launcher is Launcher.LOCAL:
        findings = node_job.check_this_machine(plan)
    else:
        findings = node_job.check_node(plan, patience_s, notify)
    # what a submission downloads is missing on the node, too
    known = "node data" if _check_data(plan).level is Severity.WARNING else ""
    yield from (finding for finding in findings if finding.about != known)


def _plan(sweep: Sweep) -> tuple[Plan | None, str]:
    """Plan as a submission does, but download nothing; return the plan, or why there is none."""
    try:
        return make_plan(sweep, fetch=False, notify=lambda _: None), ""
    except HpmlError as error:
        return None, str(error)


def _login_node_findings(
    sweep: Sweep, plan: Plan | None, fault: str
) -> Iterator[Finding]:
    """Yield the findings that need no job; `fault` is why there is no plan."""
    settings = sweep.settings[0]
    cluster = settings.cluster
    origin = sweep.origins.get("cluster", "the command line")
    yield ok("cluster", sweep.detected or f"cluster={cluster.name} ({origin})")
    slurm_answers = False
    if cluster.launcher is Launcher.SLURM:
        slurm_answers = yield from _commands_and_controller()
    if slurm_answers:
        accounts = associations()
        yield controller.check_accounting()
        yield check_account(cluster, accounts)
        yield check_qos(cluster, accounts)
        yield controller.check_nodes()
    outputs = resolve_path(settings.outputs)
    yield check_outputs(outputs)
    if cluster.hosts:
        yield _check_hosts(cluster, cluster.hosts, outputs)
    if plan:
        yield _check_data(plan)
    elif cluster.account or cluster.account_rule is not Rule.REQUIRED:
        yield problem("cell", fault)  # a missing account is already reported
    yield from check_container(cluster, outputs)
    yield from check_python(cluster, outputs)
    if slurm_answers and plan:
        yield from _request_findings(plan)


def _commands_and_controller() -> Generator[Finding, None, bool]:
    """Yield findings on SLURM's commands and its controller; return whether SLURM answers."""
    for check in (controller.check_commands, controller.check_controller):
        finding = check()
        yield finding
        if finding.level is Severity.PROBLEM:
            return False
    return True


def _request_findings(plan: Plan) -> Iterator[Finding]:
    """Yield what SLURM says of the jobs that a submission would send."""
    for request in make_requests(plan, plan.cells):
        yield check_request(plan, request)
    if plan.has_followup or not lacks_partition(plan.cluster):
        yield check_followup(plan)


def _check_data(plan: Plan) -> Finding:
    """Check that the data sets of all workloads are downloaded."""
    needed = dict.fromkeys(
        (cell.cell.workload, cell.file.data_root) for cell in plan.cells
    )
    for workload, root in needed:
        dataset = DATASETS.get(workload.data)
        if dataset and dataset.is_missing(Path(root)):
            return warning(
                "data",
                f"{dataset.title} is not in {root}",
                "nothing to do: a submission downloads it",
            )
    (workload, root), *_ = needed
    dataset = DATASETS.get(workload.data)
    where = f" in {root}" if dataset and dataset.on_disk else ""
    return ok(
        "data",
        f"workload={workload.name}: {workload.images:,} training {workload.samples_text}{where}",
    )


LEAST_FREE_GB = 1.0


def _check_hosts(cluster: Cluster, hosts: Sequence[str], folder: Path) -> Finding:
    """Check that the machines of cluster=ssh can run cells of studies in the folder."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        check_hosts(cluster, existing)
    except HpmlError as error:
        return problem("hosts", str(error))
    return ok(
        "hosts", f"{', '.join(hosts)} answer, share {existing} and reach each other"
    )


def check_outputs(folder: Path) -> Finding:
    """Check that studies can be written to the folder, and that it has space."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"doctor")
        free_gb = shutil.disk_usage(existing).free / 1e9
    except OSError as error:
        return problem(
            "outputs",
            f"{folder} cannot be written: {error.strerror}",
            "choose a folder that you may write to with outputs=PATH",
        )
    observed = f"{folder}: writable, {free_gb:,.1f} GB free"
    if free_gb < LEAST_FREE_GB:
        return warning(
            "outputs",
            observed,
            "free disk space, or choose another folder with outputs=PATH",
        )
    return ok("outputs", observed)
