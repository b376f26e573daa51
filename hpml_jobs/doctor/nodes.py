"""Checks of the cluster's nodes: partitions, GPU models, unavailable nodes, the profile."""

from collections import Counter
from typing import NamedTuple

from hpml_jobs.core.answers import Finding, ok, problem, warning
from hpml_jobs.core.cluster import Cluster, GpuRequest
from hpml_jobs.core.text import counted
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.commands import ask_slurm
from hpml_jobs.slurm.nodes import Node

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


def parse_states(text: str) -> dict[str, NodeState]:
    """Parse nodes by name from `sinfo -h -N -o '%N|%T|%f|%E'`.

    >>> parse_states("gr001|drained*|rtx8000,ib|bad fan\\n")["gr001"].is_unavailable
    True
    """
    rows = [line.strip().split("|", 3) for line in text.splitlines() if line.count("|") >= 3]
    return {
        name: NodeState(name, state, frozenset(features.split(",")), reason)
        for name, state, features, reason in rows
    }


def check_nodes(cluster: Cluster, gpu_type: str | None) -> list[Finding]:
    """Report the nodes, compare them with the profile, and report unavailable ones."""
    inventory = commands.inventory()
    if not inventory:
        answer = ask_slurm("sinfo", "-h")
        return [problem("nodes", f"sinfo lists no nodes: {answer.complaint or 'no output'}")]
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
    return ", ".join(
        counted(count, "node") + (f" x {gpus} {gpu_type or 'GPU'}" if gpus else " without GPUs")
        for (gpu_type, gpus), count in sizes.items()
    )


def _check_profile(
    cluster: Cluster, inventory: tuple[Node, ...], states: dict[str, NodeState]
) -> list[Finding]:
    """Compare GPU models and GPUs per node of the profile with sinfo."""
    most: dict[str, int] = {}
    for node in inventory:
        state = states.get(node.name)
        features = state.features if state else frozenset[str]()
        by_feature = cluster.gpu_request is GpuRequest.GRES_CONSTRAINT
        for gpu_type in features if by_feature else filter(None, [node.gpu_type]):
            most[gpu_type] = max(node.gpus, most.get(gpu_type, 0))
    if cluster.gpu_request is GpuRequest.PARTITION or not most or not cluster.gpu_types:
        return []
    wrong = [
        f"a node has {most[gpu_type]} {gpu_type}, the profile says {size}"
        if gpu_type in most
        else f"no node has {gpu_type}"
        for gpu_type, size in cluster.gpu_types.items()
        if most.get(gpu_type) != size
    ]
    if not wrong:
        return []
    actual = ", ".join(f"{gpu_type}: {size}" for gpu_type, size in sorted(most.items()) if size)
    observed = f"cluster={cluster.name} does not agree with sinfo: {'; '.join(wrong)}"
    return [warning("profile", observed, f"set 'cluster.gpu_types={{{actual}}}'")]


def _check_available(
    inventory: tuple[Node, ...], states: dict[str, NodeState], gpu_type: str | None
) -> list[Finding]:
    """Report unavailable nodes; a problem if no node of the requested GPU model is left."""
    unavailable = [state for state in states.values() if state.is_unavailable]
    if not unavailable:
        return []
    names = [
        f"{node.name} {node.state}"
        + (f" ({node.reason})" if node.reason not in ("", "none") else "")
        for node in unavailable[:4]
    ]
    more = f" and {len(unavailable) - 4} more" if len(unavailable) > 4 else ""
    number = f"{len(unavailable)} of {counted(len(states), 'node')}"
    observed = f"{number} unavailable: {', '.join(names)}{more}"
    usable = {node.name for node in inventory if gpu_type is None or node.gpu_type == gpu_type}
    if usable and usable <= {node.name for node in unavailable}:
        remedy = "choose another gpu_type=, or wait until they are available"
        return [problem("nodes out", f"{observed}; no {gpu_type or 'node'} is left", remedy)]
    return [warning("nodes out", observed, "nothing to do: jobs run on the other nodes")]
