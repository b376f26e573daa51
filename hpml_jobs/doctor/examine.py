"""Checks whether this machine can submit a study, in the order in which they are reported."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hpml_jobs import __version__
from hpml_jobs.core.answers import Finding, Severity, ok, problem, warning
from hpml_jobs.core.built_in import DATASETS
from hpml_jobs.core.cluster import Cluster, Launcher, Rule
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.paths import resolve_path
from hpml_jobs.core.text import PROGRAM, with_command
from hpml_jobs.doctor import controller, node_job
from hpml_jobs.doctor.controller import ASK_SUPPORT
from hpml_jobs.plan import machine
from hpml_jobs.plan.cells import Plan
from hpml_jobs.plan.resolve import make_plan
from hpml_jobs.plan.settings import Settings
from hpml_jobs.plan.sweep import Sweep, expand
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.commands import ASK_TIMEOUT_S, sbatch_environment
from hpml_jobs.submit.hosts import check_hosts
from hpml_jobs.submit.job_requests import JobRequest, lacks_partition, make_requests
from hpml_jobs.submit.scripts import followup_script, script

Notify = Callable[[str], None]


def examine(
    words: list[str], config_dir: Path | None, *, job: bool, patience_s: float, notify: Notify
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
    plan, fault = None, ""
    try:  # plan as a submission does, but download and submit nothing
        plan = make_plan(sweep, fetch=False, notify=lambda _: None)
    except HpmlError as error:
        fault = str(error)
    problems = 0
    for finding in _login_node_findings(sweep, plan, fault):
        problems += finding.level is Severity.PROBLEM
        yield finding
    if not job or plan is None:
        return
    if problems:
        yield warning("job", "diagnostic job not submitted", "fix the problems above first")
    elif plan.cluster.launcher is Launcher.LOCAL:
        yield from node_job.check_this_machine(plan)
    else:
        yield from node_job.check_node(plan, patience_s, notify)


def _login_node_findings(sweep: Sweep, plan: Plan | None, fault: str) -> Iterator[Finding]:
    """Yield the findings that need no job; `fault` is why there is no plan."""
    settings = sweep.settings[0]
    cluster = settings.cluster
    yield _check_profile(sweep, settings)
    slurm_answers = cluster.launcher is Launcher.SLURM
    for check in (controller.check_commands, controller.check_controller) if slurm_answers else ():
        finding = check()
        yield finding
        if finding.level is Severity.PROBLEM:
            slurm_answers = False
            break
    if slurm_answers:
        yield from _slurm_findings(settings, plan)
    outputs = resolve_path(settings.outputs)
    yield check_outputs(outputs, cluster)
    if cluster.hosts:
        yield _check_hosts(cluster, cluster.hosts, outputs)
    if plan:
        yield _check_data(plan)
    elif cluster.account or cluster.account_rule is not Rule.REQUIRED:  # else already reported
        yield problem("cell", fault)
    yield from check_container(cluster, outputs)
    yield from check_python(cluster, outputs)
    if slurm_answers and plan:
        requests = make_requests(plan, plan.cells)
        yield from (check_request(plan, request) for request in requests)
        if plan.has_followup or not lacks_partition(cluster):
            yield check_followup(plan)


def _check_profile(sweep: Sweep, settings: Settings) -> Finding:
    """Report which profile is used and why; warn if it is another cluster's."""
    origin = sweep.origins.get("cluster", "the command line")
    cluster = settings.cluster
    reason = sweep.detected or f"cluster={cluster.name} ({origin})"
    if not cluster.known_as or not commands.has_sbatch():
        return ok("cluster", reason)
    name = commands.limits().get("ClusterName", "")
    if name and name.lower() not in cluster.known_as:
        observed = f"{reason}, but SLURM's ClusterName is {name}"
        return warning(
            "cluster", observed, "use cluster=auto, which chooses this cluster's profile"
        )
    return ok("cluster", reason)


def _slurm_findings(settings: Settings, plan: Plan | None) -> Iterator[Finding]:
    """Yield findings on accounting, limits, account and nodes."""
    cluster = settings.cluster
    yield controller.check_accounting()
    accounts = controller.associations()
    yield controller.check_limits(cluster, accounts, len(plan.cells) if plan else 1)
    yield controller.check_account(cluster, accounts)
    if cluster.qos:
        yield controller.check_qos(cluster, accounts)
    gpu_type = plan.cells[0].shape.gpu_type if plan else settings.gpu_type
    yield from controller.check_nodes(cluster, gpu_type)


def _check_data(plan: Plan) -> Finding:
    """Check that the data sets of all workloads are downloaded."""
    file = plan.cells[0].file
    workload = file.cell.workload
    needed = dict.fromkeys((cell.cell.workload, cell.file.data_root) for cell in plan.cells)
    for needed_workload, root in needed:
        dataset = DATASETS.get(needed_workload.data)
        if dataset is not None and dataset.is_missing(Path(root)):
            remedy = with_command(
                "load it, which a submission does too",
                f"{PROGRAM} fetch workload={needed_workload.name}",
            )
            return warning("data", f"{dataset.title} is not in {root}", remedy)
    dataset = DATASETS.get(workload.data)
    where = f" in {file.data_root}" if dataset is not None and dataset.on_disk else ""
    return ok(
        "data",
        f"workload={workload.name}: {workload.images:,} training {workload.samples_text}{where}",
    )


_ACCEPTED = re.compile(r"to start at (\S+).*using \d+ processors on nodes (\S+) in partition (\S+)")

_REMEDIES = (
    ("account", "set cluster.account="),
    ("qos", "set cluster.qos="),
    ("partition", "set cluster.partition="),
    ("time limit", "lower minutes="),
    ("array", "set cluster.max_array_size="),
    ("node configuration", "lower gpus= or cluster.mem_gb_per_gpu=, or choose another gpu_type="),
)
"""Words of SLURM's refusal and remedies; the first word that the refusal contains counts."""


def check_request(plan: Plan, request: JobRequest) -> Finding:
    """Check that sbatch would accept a job request; nothing is submitted."""
    return _check_script("request", str(request), script(plan.study, plan.cluster, request))


def check_followup(plan: Plan) -> Finding:
    """Check that sbatch would accept the job of collect_after, retries and largest_batch=auto."""
    return _check_script("follow-up", "the follow-up job", followup_script(plan, jobs=()))


def _check_script(about: str, name: str, text: str) -> Finding:
    """Check that sbatch would accept a script."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test.sh"
        path.write_text(text)
        try:
            done = subprocess.run(
                ["sbatch", "--test-only", str(path)],
                capture_output=True,
                text=True,
                timeout=ASK_TIMEOUT_S,
                env=sbatch_environment(text),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            timed_out = isinstance(error, subprocess.TimeoutExpired)
            reason = f"no answer within {ASK_TIMEOUT_S} s" if timed_out else str(error)
            return warning(about, f"sbatch --test-only: {reason}", ASK_SUPPORT)
    answer = "; ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
    if done.returncode:
        remedies = (remedy for word, remedy in _REMEDIES if word in answer.lower())
        remedy = next(remedies, "plan shows the script that sbatch rejects")
        return problem(about, f"sbatch rejects {name}: {answer}", remedy)
    match = _ACCEPTED.search(answer)
    start = f"it could start at {match[1]} on {match[2]} ({match[3]})" if match else answer
    return ok(about, f"sbatch accepts {name}: {start}")


LEAST_FREE_GB = 1.0
PYTHON_TIMEOUT_S = 90  # the first start of a container reads its image

_VERSIONS = """\
import json, platform
from importlib.metadata import PackageNotFoundError, version
versions = {"python": platform.python_version()}
for name in ("hpml-jobs", "torch", "torchvision"):
    try:
        versions[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(versions))
"""
"""Program for the jobs' Python; it does not import torch, which takes seconds."""


class Mount(NamedTuple):
    """A mount point and the type of its file system."""

    place: Path
    type: str

    @property
    def in_memory(self) -> bool:
        """Whether it is memory of this machine, which no node can read."""
        return self.type in ("tmpfs", "ramfs")


def mounts() -> str:
    """Return the table of this machine's mounts."""
    return Path("/proc/self/mounts").read_text()


def mount_of(folder: Path, table: str) -> Mount:
    r"""Return the mount that contains a folder, from the text of /proc/self/mounts.

    >>> mount_of(Path("/scratch/me"), "a / ext4 rw 0 0\nb /scratch lustre rw 0 0\n").type
    'lustre'
    """
    rows = [line.split() for line in table.splitlines()]
    mounts = [Mount(Path(row[1].replace("\\040", " ")), row[2]) for row in rows if len(row) > 2]
    containing = [mount for mount in mounts if folder.is_relative_to(mount.place)]
    deepest = max(containing, key=lambda mount: len(mount.place.parts), default=None)
    return deepest or Mount(Path("/"), "unknown")


def _check_hosts(cluster: Cluster, hosts: Sequence[str], folder: Path) -> Finding:
    """Check that the machines of cluster=ssh can run cells of studies in the folder."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        check_hosts(cluster, existing)
    except HpmlError as error:
        return problem("hosts", str(error))
    return ok("hosts", f"{', '.join(hosts)} answer, share {existing} and reach each other")


def check_outputs(folder: Path, cluster: Cluster) -> Finding:
    """Check that studies can be written to the folder, and that it has space."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"doctor")
        free_gb = shutil.disk_usage(existing).free / 1e9
        mount = mount_of(existing, mounts())
    except OSError as error:
        remedy = "choose a folder that you may write to with outputs=PATH"
        return problem("outputs", f"{folder} cannot be written: {error.strerror}", remedy)
    observed = f"{folder}: writable, {free_gb:,.1f} GB free on {mount.place} ({mount.type})"
    if free_gb < LEAST_FREE_GB:
        return warning(
            "outputs", observed, "free disk space, or choose another folder with outputs=PATH"
        )
    if mount.in_memory and cluster.launcher is Launcher.SLURM:
        remedy = (
            "nodes cannot read this machine's memory: choose outputs=PATH on a shared file system"
        )
        return problem("outputs", observed, remedy)
    return ok("outputs", observed)


NODES_MAY_DIFFER = "the nodes may have it: doctor asks one of them"

_NETWORK = re.compile(
    r"nfs|lustre|gpfs|beegfs|ceph|wekafs|panfs|pvfs|orangefs|gluster|cifs|smb|9p|afs"
)
"""Types of file systems that nodes share with this machine."""


def _is_of_nodes(path: Path, outputs: Path) -> bool:
    """Return whether nodes have what this machine has at a path, as they have the studies."""
    table = mounts()
    place, studies = (mount_of(each.absolute(), table) for each in (path, outputs))
    return place.place == studies.place or _NETWORK.search(place.type) is not None


def _absent(about: str, observed: str, remedy: str, *, is_sure: bool) -> Finding:
    """Return a problem; a warning where only a node can tell."""
    return (
        problem(about, observed, remedy) if is_sure else warning(about, observed, NODES_MAY_DIFFER)
    )


def check_container(cluster: Cluster, outputs: Path) -> list[Finding]:
    """Check that image, overlay and runtime of the container are available; none without one."""
    container = cluster.container
    if container.image is None:
        return []
    findings = []
    for name, text in (("image", container.image), ("overlay", container.overlay)):
        if text is None or "://" in text:
            continue
        path = Path(text)
        if not os.access(path, os.R_OK):
            fault = "cannot be read" if path.exists() else "does not exist"
            remedy = f"correct cluster.container.{name}=PATH"
            is_sure = _is_of_nodes(path, outputs)
            findings.append(_absent("container", f"{name} {text} {fault}", remedy, is_sure=is_sure))
    if shutil.which(container.runtime) is None:
        remedy = "if the nodes do not have it either, set cluster.container.runtime="
        findings.append(warning("container", f"{container.runtime} is not on PATH here", remedy))
    overlay = f" with {container.overlay}" if container.overlay else ""
    return findings or [ok("container", f"{container.runtime} runs {container.image}{overlay}")]


def check_python(cluster: Cluster, outputs: Path) -> list[Finding]:
    """Check that the jobs' Python runs, and has this version of hpml_jobs and torch.

    With cluster.setup, or of a Python that only this machine has, a fault is a warning.
    """
    if cluster.container.image is not None and shutil.which(cluster.container.runtime) is None:
        return []  # already reported; the diagnostic job checks it on the node
    command = cluster.python_command(sys.executable)
    where = cluster.python or ("the container's" if cluster.container.image else sys.executable)
    is_sure = not cluster.setup
    if cluster.python and not cluster.container.image:
        is_sure &= _is_of_nodes(Path(shutil.which(cluster.python) or cluster.python), outputs)
    if cluster.launcher is Launcher.LOCAL:
        command, where, is_sure = [sys.executable], sys.executable, True
    try:
        done = subprocess.run(
            [*command, "-c", _VERSIONS],
            capture_output=True,
            text=True,
            timeout=PYTHON_TIMEOUT_S,
            check=False,
        )
        versions: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        lines = [] if isinstance(error, OSError | subprocess.TimeoutExpired) else [done.stderr]
        reason = (" ".join(lines).strip().splitlines() or [str(error)])[-1]
        remedy = "set cluster.python=PATH to a Python that the jobs can run"
        is_sure &= not isinstance(error, subprocess.TimeoutExpired)
        return [_absent("python", f"{where} does not run: {reason}", remedy, is_sure=is_sure)]
    found = ok("python", f"{where}, Python {versions['python']}")
    return [found, _check_versions(versions, where, is_sure=is_sure)]


def _check_versions(versions: dict[str, str], where: str, *, is_sure: bool) -> Finding:
    observed = ", ".join(f"{name} {text}" for name, text in versions.items() if name != "python")
    if versions.get("hpml-jobs") != __version__:
        installed = observed or "no hpml-jobs and no torch"
        both = f"{where} has {installed}; this is hpml-jobs {__version__}"
        remedy = f"install hpml-jobs {__version__} there"
        return _absent("versions", both, remedy, is_sure=is_sure)
    missing = [name for name in ("torch", "torchvision") if name not in versions]
    if missing:
        remedy = "pip install -r locks/worker.txt there, or set cluster.python= or a container"
        both = f"{where} has {observed}; no {' and no '.join(missing)}"
        return _absent("versions", both, remedy, is_sure=is_sure)
    return ok("versions", observed)


def before_queue(plan: Plan) -> Iterator[Finding]:
    """Yield what this machine knows to be wrong with the jobs of a plan, before they are queued.

    It starts no container and asks SLURM only about what the user has named.
    """
    cluster, outputs = plan.cluster, plan.study.root
    if cluster.account or cluster.qos:
        accounts = controller.associations()
        yield controller.check_account(cluster, accounts)
        yield controller.check_qos(cluster, accounts)
    if cluster.container.image is not None:
        yield from check_container(cluster, outputs)
    elif cluster.python is not None:
        yield from check_python(cluster, outputs)
    if plan.has_followup:
        yield check_followup(plan)
