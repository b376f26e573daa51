"""Nodes and limits of a cluster, from the text of sinfo and scontrol."""

import re
from typing import NamedTuple

from hpml_jobs.slurm.jobs import span_s


class Node(NamedTuple):
    """One node of a cluster; `gpu_type` None where SLURM knows GPUs without a kind."""

    name: str
    gpu_type: str | None
    gpus: int
    cpus: int
    memory_gb: float
    partitions: frozenset[str]


SINFO_FORMAT = "%N|%G|%c|%m|%R"


_GPU = re.compile(r"gpu:(?:(?P<kind>[^:(,]+):)?(?P<count>\d+)")


def parse_sinfo(text: str) -> list[Node]:
    """Nodes from `sinfo -h -N -o '%N|%G|%c|%m|%R'`; a node in two partitions is one node.

    A node with several kinds of GPU appears once per kind.

    >>> parse_sinfo("gr001|gpu:rtx8000:4(S:0)|16|9000|main\\n")[0][:4]
    ('gr001', 'rtx8000', 4, 16)
    """
    nodes: dict[tuple[str, str | None], Node] = {}
    for line in text.splitlines():
        fields = line.strip().split("|")
        if len(fields) != 5:
            continue
        name, gres, cpus, memory, partition = fields
        kinds = [(m["kind"], int(m["count"])) for m in _GPU.finditer(gres)] or [(None, 0)]
        for kind, count in kinds:
            known = nodes.get((name, kind))
            partitions = frozenset({partition}) | (known.partitions if known else frozenset())
            size = int(cpus.rstrip("+")), int(memory.rstrip("+")) / 1000
            nodes[name, kind] = Node(name, kind, count, *size, partitions)
    return list(nodes.values())


def parse_limits(text: str) -> dict[str, str]:
    """`scontrol show config` as a mapping.

    >>> parse_limits("MaxArraySize            = 1001\\nClusterName = greene\\n")["MaxArraySize"]
    '1001'
    """
    pairs = (line.split("=", 1) for line in text.splitlines() if " = " in line)
    return {key.strip(): value.strip() for key, value in pairs}


def parse_time_limits(text: str) -> dict[str, float]:
    """Minutes that each partition gives at most, by `sinfo -h -o '%P|%l'`; the default's as "" too.

    >>> parse_time_limits("main*|1:00:00\\nlong|2-00:00:00\\nfree|infinite\\n")
    {'main': 60.0, '': 60.0, 'long': 2880.0}
    """
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, limit = line.strip().partition("|")
        seconds = span_s(limit)
        if seconds is not None:
            found[name.rstrip("*")] = seconds / 60
            found |= {"": seconds / 60} if name.endswith("*") else {}
    return found
