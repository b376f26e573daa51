"""SLURM's words: its states and what they mean for a cell; its nodes and limits as values."""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """What became of a cell; before there is an outcome: waiting, running, missing, unknown."""

    OK = "ok"
    OOM = "oom"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    NODE_FAIL = "node_fail"
    CANCELLED = "cancelled"
    FAILED = "failed"
    INVALID = "invalid"
    WAITING = "waiting"
    RUNNING = "running"
    MISSING = "missing"
    UNKNOWN = "unknown"

    @property
    def active(self) -> bool:
        """Whether a job for the cell is still under way."""
        return self in (Outcome.WAITING, Outcome.RUNNING)

    @property
    def finished(self) -> bool:
        """Whether the cell has its answer: numbers, or that memory does not suffice."""
        return self in (Outcome.OK, Outcome.OOM)


_MEANING = {
    "BOOT_FAIL": Outcome.NODE_FAIL,
    "CANCELLED": Outcome.CANCELLED,
    "COMPLETED": Outcome.MISSING,  # the job ended well and yet left no record
    "COMPLETING": Outcome.RUNNING,
    "CONFIGURING": Outcome.WAITING,
    "DEADLINE": Outcome.TIMEOUT,
    "FAILED": Outcome.FAILED,
    "NODE_FAIL": Outcome.NODE_FAIL,
    "OUT_OF_MEMORY": Outcome.OOM,
    "PENDING": Outcome.WAITING,
    "PREEMPTED": Outcome.PREEMPTED,
    "REQUEUED": Outcome.WAITING,
    "REQUEUE_HOLD": Outcome.WAITING,
    "RESIZING": Outcome.RUNNING,
    "REVOKED": Outcome.CANCELLED,
    "RUNNING": Outcome.RUNNING,
    "SIGNALING": Outcome.RUNNING,
    "SPECIAL_EXIT": Outcome.WAITING,
    "STAGE_OUT": Outcome.RUNNING,
    "STOPPED": Outcome.RUNNING,
    "SUSPENDED": Outcome.RUNNING,
    "TIMEOUT": Outcome.TIMEOUT,
}


def outcome_of(state: str) -> Outcome:
    """What a SLURM state means for a cell without a record.

    The state is judged, never the exit code: OUT_OF_MEMORY can come with exit code 0.

    >>> outcome_of("CANCELLED by 1000"), outcome_of("OUT_OF_MEMORY"), outcome_of("HYPERSPACE")
    (<Outcome.CANCELLED: 'cancelled'>, <Outcome.OOM: 'oom'>, <Outcome.UNKNOWN: 'unknown'>)
    """
    word = state.split(" ", maxsplit=1)[0].rstrip("+").upper()
    return _MEANING.get(word, Outcome.UNKNOWN)


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


LEAKING = re.compile(
    r"SLURM_|SLURMD_|SRUN_|SBATCH_|SALLOC_|PET_|PMI|TORCHELASTIC_|SUBMITIT_|GROUP_RANK|ROLE_|"
    r"(RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)$"
)


def scrubbed(environment: dict[str, str], *, inside_job: bool) -> dict[str, str]:
    """An environment without what a surrounding job leaks into ours; SLURM_CONF stays.

    Outside a job, SBATCH_* variables are the person's own defaults and stay too.

    >>> scrubbed({"SLURM_CPU_BIND": "x", "SLURM_CONF": "c", "RANK": "0", "A": "b"}, inside_job=True)
    {'SLURM_CONF': 'c', 'A': 'b'}
    """

    def stays(name: str) -> bool:
        if name == "SLURM_CONF" or (name.startswith("SBATCH_") and not inside_job):
            return True
        return LEAKING.match(name) is None

    return {name: value for name, value in environment.items() if stays(name)}


_OF_THE_ALLOCATION = re.compile(
    r"SLURM_(JOB_(ID|NAME|NODELIST|NUM_NODES|PARTITION|QOS|GPUS|CPUS_PER_NODE)|ARRAY_(JOB|TASK)_ID|"
    r"CLUSTER_NAME|RESTART_COUNT|CPUS_.*|GPUS.*|MEM_.*|STEP_(ID|GPUS|NODELIST|NUM_NODES)|NNODES|"
    r"NODEID|NTASKS.*|TRES_PER_TASK|TOPOLOGY_ADDR|SUBMIT_HOST|CONF)"
)


def about_allocation(environment: Mapping[str, str]) -> dict[str, str]:
    """What a job's environment tells of its allocation; named one by one, for a token may be near.

    >>> about_allocation({"SLURM_JOB_ID": "17", "SLURM_JWT": "secret", "HOME": "/"})
    {'SLURM_JOB_ID': '17'}
    """
    return {n: value for n, value in environment.items() if _OF_THE_ALLOCATION.fullmatch(n)}


def is_slurm(job: str) -> bool:
    """Whether a job is SLURM's; jobs on one's own machine are `local-…` and `here-…`.

    >>> is_slurm("17_0"), is_slurm("local-812-1700000000"), is_slurm("")
    (True, False, False)
    """
    return job[:1].isdigit()


def array_ids(jobs: Iterable[str]) -> list[str]:
    """The array ids of jobs, each once, in order: what squeue and sacct are asked for.

    >>> array_ids(["17_0", "17_1", "20"])
    ['17', '20']
    """
    return list(dict.fromkeys(job.split("_", maxsplit=1)[0] for job in jobs))
