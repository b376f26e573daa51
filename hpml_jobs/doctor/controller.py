"""Checks of SLURM: commands, controller, accounting, limits and account of this user, nodes."""

import math
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hpml_jobs.core.answers import Finding, ok, problem, warning
from hpml_jobs.core.cluster import Cluster, GpuRequest
from hpml_jobs.core.text import counted, few
from hpml_jobs.doctor.before_queue import ASK_SUPPORT, cluster_name
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.commands import Association, ask_slurm
from hpml_jobs.slurm.nodes import Node

COMMANDS = ("sbatch", "srun", "squeue", "scontrol", "sinfo", "sacct", "scancel")

_UP, _NO_ACCOUNTS = "is UP", "disabled"
"""Texts of `scontrol ping` if the controller answers, and of sacct if accounting is disabled."""

_QOS_LIMITS = ("MaxJobsPU", "MaxSubmitPU", "MaxTRESPU", "MaxWall")
QOS_FORMAT = ",".join(("Name", *_QOS_LIMITS))


def parse_qos(text: str) -> dict[str, dict[str, str]]:
    """Parse `sacctmgr -nP show qos format=QOS_FORMAT` into the limits that are set, by QOS.

    >>> parse_qos("normal||||\\ngpu48|||gres/gpu=24|2-00:00:00\\n")["gpu48"]
    {'MaxTRESPU': 'gres/gpu=24', 'MaxWall': '2-00:00:00'}
    """
    limits = {}
    for line in text.splitlines():
        name, *values = line.split("|")[:5]
        if len(values) < 4:
            continue
        pairs = zip(_QOS_LIMITS, values, strict=True)
        limits[name] = {limit: value for limit, value in pairs if value}
    return limits


def check_commands() -> Finding:
    """Check that SLURM's commands are on PATH and of one version."""
    present = [name for name in COMMANDS if shutil.which(name)]
    missing = [name for name in COMMANDS if name not in present]
    answers = {ask_slurm(name, "--version").text.strip() for name in present}
    versions = ", ".join(sorted(answers - {""})) or "version not reported"
    if {*missing} - {"sacct"}:
        observed = f"{', '.join(missing)} not on PATH"
        return problem(
            "commands", observed, "load the cluster's SLURM, e.g. module load slurm"
        )
    if missing:
        remedy = "add sacct to PATH; without it, states come from squeue and the files of jobs"
        return warning("commands", f"{versions}; sacct is not on PATH", remedy)
    if len(answers) > 1:
        return warning(
            "commands", versions, "keep the commands of one SLURM version on PATH"
        )
    return ok("commands", f"{', '.join(COMMANDS)}: {versions}")


def check_controller() -> Finding:
    """Check that the controller answers."""
    start = time.monotonic()
    answer = ask_slurm("scontrol", "ping")
    duration = f"{time.monotonic() - start:.1f} s"
    if _UP in answer.text:
        return ok("controller", f"cluster {cluster_name()} answers in {duration}")
    text = " ".join((answer.text or answer.complaint).split()) or "no output"
    return problem("controller", f"scontrol ping: {text} ({duration})", ASK_SUPPORT)


def check_accounting() -> Finding:
    """Check that sacct answers: it knows the states of jobs that have left the queue."""
    answer = ask_slurm("sacct", "-X", "-P", "-n", "-o", "JobID", "-j", "1")
    if answer.code == 0:
        return ok("accounting", "sacct answers")
    if _NO_ACCOUNTS in answer.complaint:
        remedy = "nothing to do: states of finished jobs come from squeue and the files of jobs"
        return warning("accounting", "accounting is disabled on this cluster", remedy)
    return warning("accounting", f"sacct: {answer.complaint}", ASK_SUPPORT)


def check_limits(
    cluster: Cluster, accounts: Sequence[Association], cells: int
) -> Finding:
    """Compare SLURM's limits for this user with the number of cells."""
    config = commands.limits()
    parts = [
        f"{key} {config[key]}"
        for key in ("MaxArraySize", "MaxJobCount")
        if key in config
    ]
    limits = _limits_by_owner(cluster, accounts)
    parts += [f"{owner}: {_words(values)}" for owner, values in limits]
    if accounts and not limits:
        parts.append("no limit on your jobs")
    observed = "; ".join(parts) or "SLURM reports none"
    if cells > _most_jobs(values for _, values in limits):
        remedy = f"submit the {cells} cells in parts, or with pack=true"
        return warning("limits", observed, remedy)
    return ok("limits", observed)


def _limits_by_owner(
    cluster: Cluster, accounts: Sequence[Association]
) -> list[tuple[str, Mapping[str, str]]]:
    """Return the limits of the accounts that jobs may use, and of their QOS; none that is empty."""
    usable = [
        account for account in accounts if cluster.account in (None, account.account)
    ]
    limits = [(f"account {account.account}", account.limits) for account in usable]
    names = [name for account in usable for name in account.qos]
    if qos := cluster.sbatch.get("qos"):
        names = [str(qos)]
    limits += [(f"QOS {name}", of_qos) for name, of_qos in _qos_limits(names).items()]
    return [(owner, values) for owner, values in limits if values]


def _qos_limits(names: Sequence[str]) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    query = ("show", "qos", "where", f"name={','.join(dict.fromkeys(names))}")
    return parse_qos(ask_slurm("sacctmgr", "-nP", *query, f"format={QOS_FORMAT}").text)


def _most_jobs(limits: Iterable[Mapping[str, str]]) -> float:
    """Return how many jobs may be submitted under all of these limits."""
    numbers = [
        int(text)
        for values in limits
        for name, text in values.items()
        if "MaxSubmit" in name
    ]
    return min(numbers, default=math.inf)


def _words(limits: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in limits.items())


STATE_FORMAT = "%N|%T|%f|%E"
_UNAVAILABLE = (
    "down",
    "drain",
    "drng",
    "fail",
    "inval",
    "unk",
    "maint",
    "no_respond",
    "error",
    "reboot",
)


class NodeState(NamedTuple):
    """A node's SLURM state, its features, and the reason if it is unavailable."""

    name: str
    state: str
    features: frozenset[str]
    reason: str

    @property
    def is_unavailable(self) -> bool:
        """Whether no job can start on it now; `*` marks a node that does not respond."""
        return self.state.startswith(_UNAVAILABLE) or self.state.endswith("*")

    @property
    def text(self) -> str:
        """The node, its state and the reason, if SLURM gives one."""
        has_reason = self.reason not in ("", "none")
        return f"{self.name} {self.state}" + (f" ({self.reason})" if has_reason else "")


def parse_states(text: str) -> dict[str, NodeState]:
    """Parse nodes by name from `sinfo -h -N -o '%N|%T|%f|%E'`.

    >>> parse_states("gr001|drained*|rtx8000,ib|bad fan\\n")["gr001"].is_unavailable
    True
    """
    states = {}
    for line in text.splitlines():
        fields = line.strip().split("|", 3)
        if len(fields) == 4:
            name, state, features, reason = fields
            states[name] = NodeState(
                name, state, frozenset(features.split(",")), reason
            )
    return states


def check_nodes(cluster: Cluster, gpu_type: str | None) -> list[Finding]:
    """Report the nodes, compare them with the profile, and report unavailable ones."""
    inventory = commands.inventory()
    if not inventory:
        answer = ask_slurm("sinfo", "-h")
        return [
            problem("nodes", f"sinfo lists no nodes: {answer.complaint or 'no output'}")
        ]
    states = parse_states(ask_slurm("sinfo", "-h", "-N", "-o", STATE_FORMAT).text)
    partitions = sorted(frozenset().union(*(node.partitions for node in inventory)))
    summary = ok("nodes", f"{_summary(inventory)}; partitions {', '.join(partitions)}")
    return [
        summary,
        *_check_profile(cluster, inventory, states),
        *_check_available(inventory, states, gpu_type),
    ]


def _summary(inventory: tuple[Node, ...]) -> str:
    sizes = Counter((node.gpu_type, node.gpus) for node in inventory)
    texts = []
    for (gpu_type, gpus), count in sizes.items():
        of_node = f"x {gpus} {gpu_type or 'GPU'}" if gpus else "without GPUs"
        texts.append(f"{counted(count, 'node')} {of_node}")
    return ", ".join(texts)


def _check_profile(
    cluster: Cluster, inventory: tuple[Node, ...], states: dict[str, NodeState]
) -> list[Finding]:
    """Compare GPU models and GPUs per node of the profile with sinfo."""
    most = _most_gpus(cluster, inventory, states)
    if cluster.gpu_request is GpuRequest.PARTITION or not most:
        return []
    wrong = []
    for gpu_type, size in cluster.gpu_types.items():
        if gpu_type not in most:
            wrong.append(f"no node has {gpu_type}")
        elif most[gpu_type] != size:
            wrong.append(
                f"a node has {most[gpu_type]} {gpu_type}, the profile says {size}"
            )
    if not wrong:
        return []
    actual = ", ".join(
        f"{gpu_type}: {size}" for gpu_type, size in sorted(most.items()) if size
    )
    observed = f"cluster={cluster.name} does not agree with sinfo: {'; '.join(wrong)}"
    return [warning("profile", observed, f"set 'cluster.gpu_types={{{actual}}}'")]


def _most_gpus(
    cluster: Cluster, inventory: tuple[Node, ...], states: dict[str, NodeState]
) -> dict[str, int]:
    """Return the most GPUs that a node has, by all that may name their model."""
    most: dict[str, int] = {}
    for node in inventory:
        names: Iterable[str] = [node.gpu_type] if node.gpu_type else []
        if cluster.gpu_request is GpuRequest.GRES_CONSTRAINT:
            names = states[node.name].features if node.name in states else []
        for name in names:
            most[name] = max(node.gpus, most.get(name, 0))
    return most


def _check_available(
    inventory: tuple[Node, ...], states: dict[str, NodeState], gpu_type: str | None
) -> list[Finding]:
    """Report unavailable nodes; a problem if no node of the requested GPU model is left."""
    unavailable = {
        name: state.text for name, state in states.items() if state.is_unavailable
    }
    if not unavailable:
        return []
    number = f"{len(unavailable)} of {counted(len(states), 'node')}"
    observed = f"{number} unavailable: {few(unavailable.values(), 4)}"
    usable = {node.name for node in inventory if gpu_type in (None, node.gpu_type)}
    if usable and usable <= unavailable.keys():
        remedy = "choose another gpu_type=, or wait until they are available"
        return [
            problem("nodes out", f"{observed}; no {gpu_type or 'node'} is left", remedy)
        ]
    return [
        warning("nodes out", observed, "nothing to do: jobs run on the other nodes")
    ]
