"""The cluster's nodes: partitions, kinds of GPUs, which are out, and what the profile says."""

from collections import Counter
from typing import NamedTuple

from hpml_jobs.core.cluster import Cluster, GpuRequest
from hpml_jobs.core.findings import Finding, ok, problem, warning
from hpml_jobs.core.text import counted
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.commands import ask_slurm
from hpml_jobs.slurm.nodes import Node

STATE_FORMAT = "%N|%T|%f|%E"
_OUT = ("down", "drain", "drng", "fail", "inval", "unk", "maint", "no_respond", "error", "reboot")


class NodeState(NamedTuple):
    """A node's state in SLURM's word, its features, and why it is out, if it is."""

    name: str
    state: str
    features: frozenset[str]
    why: str

    @property
    def out(self) -> bool:
        """Whether no job can start there now; `*` is a node that does not respond."""
        return self.state.startswith(_OUT) or self.state.endswith("*")


def parse_states(text: str) -> dict[str, NodeState]:
    """Nodes by name from `sinfo -h -N -o '%N|%T|%f|%E'`.

    >>> parse_states("gr001|drained*|rtx8000,ib|bad fan\\n")["gr001"].out
    True
    """
    rows = [line.strip().split("|", 3) for line in text.splitlines() if line.count("|") >= 3]
    return {
        name: NodeState(name, state, frozenset(features.split(",")), why)
        for name, state, features, why in rows
    }


def findings(cluster: Cluster, kind: str | None) -> list[Finding]:
    """What is there, what is out, and whether the profile knows it right."""
    inventory = commands.inventory()
    if not inventory:
        answer = ask_slurm("sinfo", "-h")
        return [problem("nodes", f"sinfo tells no node: {answer.complaint or 'it is silent'}")]
    states = parse_states(ask_slurm("sinfo", "-h", "-N", "-o", STATE_FORMAT).text)
    partitions = sorted(frozenset().union(*(node.partitions for node in inventory)))
    there = ok("nodes", f"{_kinds(inventory)}; partitions {', '.join(partitions)}")
    return [there, *_profile(cluster, inventory, states), *_out(inventory, states, kind)]


def _kinds(inventory: tuple[Node, ...]) -> str:
    sizes = Counter((node.gpu_type, node.gpus) for node in inventory)
    return ", ".join(
        counted(count, "node") + (f" x {gpus} {kind or 'GPU'}" if gpus else " without GPUs")
        for (kind, gpus), count in sizes.items()
    )


def _profile(
    cluster: Cluster, inventory: tuple[Node, ...], states: dict[str, NodeState]
) -> list[Finding]:
    """Kinds and GPUs per node of the profile, beside what sinfo shows."""
    most: dict[str, int] = {}
    for node in inventory:
        known = states.get(node.name)
        features = known.features if known else frozenset[str]()
        by_feature = cluster.gpu_request is GpuRequest.GRES_CONSTRAINT
        for kind in features if by_feature else filter(None, [node.gpu_type]):
            most[kind] = max(node.gpus, most.get(kind, 0))
    if cluster.gpu_request is GpuRequest.PARTITION or not most or not cluster.gpu_types:
        return []
    wrong = [
        f"{kind} has {most[kind]} on a node, the profile says {size}"
        if kind in most
        else f"{kind} is not there"
        for kind, size in cluster.gpu_types.items()
        if most.get(kind) != size
    ]
    if not wrong:
        return []
    right = ", ".join(f"{kind}: {size}" for kind, size in sorted(most.items()) if size)
    seen = f"cluster={cluster.name} does not agree with sinfo: {'; '.join(wrong)}"
    return [warning("profile", seen, f"'cluster.gpu_types={{{right}}}' is what sinfo shows")]


def _out(
    inventory: tuple[Node, ...], states: dict[str, NodeState], kind: str | None
) -> list[Finding]:
    """Nodes that take no job, and whether any is left of the kind asked for."""
    out = [state for state in states.values() if state.out]
    if not out:
        return []
    told = [
        f"{one.name} {one.state}" + (f" ({one.why})" if one.why not in ("", "none") else "")
        for one in out[:4]
    ]
    more = f" and {len(out) - 4} more" if len(out) > 4 else ""
    seen = f"{len(out)} of {counted(len(states), 'node')} out: {', '.join(told)}{more}"
    wanted = {node.name for node in inventory if kind is None or node.gpu_type == kind}
    if wanted and wanted <= {one.name for one in out}:
        remedy = "jobs will wait until they are back; take another gpu_type="
        return [problem("nodes out", f"{seen}; no {kind or 'node'} is left", remedy)]
    return [warning("nodes out", seen, "jobs go to the others")]
