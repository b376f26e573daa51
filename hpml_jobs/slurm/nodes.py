"""Nodes and limits of a cluster, parsed from the output of sinfo and scontrol."""

import re
from typing import NamedTuple

from hpml_jobs.core.sbatch import parse_duration_s


class Node(NamedTuple):
    """A node of a cluster; `gpu_type` is None if SLURM does not know the type of its GPUs."""

    name: str
    gpu_type: str | None
    gpus: int
    cpus: int
    memory_gb: float
    partitions: frozenset[str]


SINFO_FORMAT = "%N|%G|%c|%m|%R"

_PLACES = re.compile(r"\([^)]*\)")
"""Sockets or indices of GPUs, e.g. `(S:0-1)`."""

_COUNT = re.compile(r"(\d{1,9})([KM]?)")

_SIZE = re.compile(r"[0-9]{1,15}\+?")
"""CPUs or memory; `+` where nodes of one line differ."""


def parse_sinfo(text: str) -> list[Node]:
    """Parse `sinfo -h -N -o '%N|%G|%c|%m|%R'`; a node in two partitions is one node.

    A node with several types of GPU appears once per type.

    >>> parse_sinfo("gr001|gpu:rtx8000:4(S:0)|16|9000|main\\n")[0][:4]
    ('gr001', 'rtx8000', 4, 16)
    """
    nodes: dict[tuple[str, str | None], Node] = {}
    for line in text.splitlines():
        fields = line.strip().split("|")
        if len(fields) != 5:
            continue
        name, gres, cpus, memory, partition = fields
        cpu_count, memory_mb = parse_size(cpus), parse_size(memory)
        if cpu_count is None or memory_mb is None:
            continue
        for gpu_type, count in parse_gpus(gres):
            partitions = frozenset({partition})
            if earlier := nodes.get((name, gpu_type)):
                partitions |= earlier.partitions
            size = cpu_count, memory_mb / 1000
            nodes[name, gpu_type] = Node(name, gpu_type, count, *size, partitions)
    return list(nodes.values())


def parse_gpus(gres: str) -> list[tuple[str | None, int]]:
    """Return the GPU types of a node with their number; (None, 0) without a GPU.

    SLURM may list the GPUs of each socket by themselves. A `vgpu` or a `shard` is not a GPU.

    >>> parse_gpus("gpu:a100:4(S:0-1),gpu:t4:1"), parse_gpus("gpu:2"), parse_gpus("(null)")
    ([('a100', 4), ('t4', 1)], [(None, 2)], [(None, 0)])
    >>> parse_gpus("gpu:a100:2(S:0),gpu:a100:no_consume:2(S:1),vgpu:4,shard:gpu:8")
    [('a100', 4)]
    """
    gpus: dict[str | None, int] = {}
    for entry in _PLACES.sub("", gres).split(","):
        name, *fields = entry.strip().replace(":no_consume", "").split(":")
        if name != "gpu":
            continue
        number = 1
        if fields and (count := _COUNT.fullmatch(fields[-1])):
            number = int(count[1]) * _MULTIPLES[count[2]]
            fields.pop()
        kind = ":".join(fields) or None
        gpus[kind] = gpus.get(kind, 0) + number
    return list(gpus.items()) or [(None, 0)]


_MULTIPLES = {"": 1, "K": 1024, "M": 1024**2}


def parse_size(text: str) -> int | None:
    """Return a number of nodes, CPUs or MB, the least where nodes of a line differ (`16+`)."""
    return int(text.rstrip("+")) if _SIZE.fullmatch(text) else None


def parse_limits(text: str) -> dict[str, str]:
    """Parse `scontrol show config` into a mapping.

    >>> parse_limits("MaxArraySize            = 1001\\nClusterName = greene\\n")["MaxArraySize"]
    '1001'
    """
    limits = {}
    for line in text.splitlines():
        if " = " in line:
            key, _, value = line.partition("=")
            limits[key.strip()] = value.strip()
    return limits


def parse_time_limits(text: str) -> dict[str, float]:
    """Parse `sinfo -h -o '%P|%l'`: time limits in minutes; the default partition is also "".

    >>> parse_time_limits("main*|1:00:00\\nlong|2-00:00:00\\nfree|infinite\\n")
    {'main': 60.0, '': 60.0, 'long': 2880.0}
    """
    minutes: dict[str, float] = {}
    for line in text.splitlines():
        name, _, limit = line.strip().partition("|")
        seconds = parse_duration_s(limit)
        if seconds is not None:
            minutes[name.rstrip("*")] = seconds / 60
            minutes |= {"": seconds / 60} if name.endswith("*") else {}
    return minutes
