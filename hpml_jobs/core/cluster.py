"""One SLURM installation, what a cell requests of it, and both as sbatch options."""

import re
import shlex
from collections.abc import Collection, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from math import ceil
from pathlib import Path
from typing import Any

import msgspec

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.sbatch import user_options
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import alike, counted, did_you_mean


class Launcher(StrEnum):
    """The place where jobs run."""

    SLURM = "slurm"
    LOCAL = "local"


class GpuRequest(StrEnum):
    """How GPUs are requested from a cluster."""

    GRES_TYPE = "gres_type"  # --gres=gpu:rtx8000:2
    GRES_CONSTRAINT = "gres_constraint"  # --gres=gpu:2 --constraint=h200
    PARTITION = "partition"  # the partition fixes GPU type and number


class Rule(StrEnum):
    """Whether a cluster requires an option."""

    OPTIONAL = "optional"
    REQUIRED = "required"


class Isolate(StrEnum):
    """The isolation of cells from other cells of the study."""

    OFF = "off"
    SERIAL = "serial"
    EXCLUSIVE = "exclusive"


class Runtime(StrEnum):
    """The program that runs an image."""

    APPTAINER = "apptainer"
    SINGULARITY = "singularity"


class Container(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Singularity/Apptainer image in which the job's Python lives; no image: no container."""

    runtime: Runtime = Runtime.SINGULARITY
    image: str | None = None
    overlay: str | None = None
    binds: tuple[str, ...] = ()
    setup: str = "source /ext3/env.sh"
    options: tuple[str, ...] = ("--nv",)

    def check(self) -> None:
        """Refuse an overlay of no image, and a folder in which no runtime has built an image."""
        if self.image is None:
            if self.overlay:
                raise UsageError(
                    f"cluster.container.overlay={self.overlay}: give cluster.container.image= too"
                )
            return
        folder = Path(self.image)
        if folder.is_dir() and not (folder / ".singularity.d").is_dir():
            raise UsageError(
                f"cluster.container.image={self.image}: the folder is not a sandbox, it has no "
                ".singularity.d; name an image, e.g. torch.sif"
            )


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts of one SLURM installation: conf/cluster/*.yaml, where every field is explained."""

    name: str
    launcher: Launcher = Launcher.SLURM
    device: Device | None = None
    gpu_request: GpuRequest = GpuRequest.GRES_TYPE
    gpu_types: dict[str, int] = {}
    gpu_type: str | None = None
    gpu_partitions: dict[str, dict[int, str]] = {}
    request_gpus_for_cpu: bool = False
    partition: str | None = None
    account: str | None = None
    account_rule: Rule = Rule.OPTIONAL
    mem_gb_per_gpu: int | None = None
    isolate: Isolate = Isolate.SERIAL
    cancel_below_utilization: dict[str, int] = {}
    gpu_hours_budget: float | None = None
    confirm_gpu_hours: float | None = 20
    cpu_partition: str | None = None
    shared_with_login: bool = True
    clusters: str | None = None
    sbatch: dict[str, Any] = {}
    setup: tuple[str, ...] = ()
    python: str | None = None
    container: Container = Container()
    data_root: str | None = None
    hosts: tuple[str, ...] | None = None

    @property
    def is_local(self) -> bool:
        """Whether cells run on this machine, or on named hosts, without SLURM."""
        return self.launcher is Launcher.LOCAL

    def check(self) -> None:
        """Refuse requests that this cluster rejects, before sbatch is called."""
        for key, value in msgspec.structs.asdict(self).items():
            if value == "":
                raise UsageError(f"cluster.{key}= is empty: leave it out")
        self.container.check()
        if self.hosts is not None:
            _check_hosts(self.hosts)
        if self.clusters and not re.fullmatch(r"[\w.-]+", self.clusters):
            raise UsageError(
                f"cluster.clusters={self.clusters} (SLURM_CLUSTERS): name one cluster; jobs of two "
                "may have the same number"
            )
        if self.account_rule is Rule.REQUIRED and not self.account:
            raise UsageError(
                f"cluster={self.name} needs an account: add cluster.account=NAME, or put it into "
                "~/.config/hpml_jobs/config.yaml (hpml-jobs init writes that file)"
            )
        if self.gpu_request is GpuRequest.PARTITION and self.partition:
            raise UsageError(
                f"cluster.partition={self.partition}: the partition of cluster={self.name} follows "
                "from gpu_type= and gpus=; leave cluster.partition out"
            )

    def gpu_type_for(self, requested: str | None) -> str | None:
        """Return the GPU type to request: the given one, checked, or this cluster's default."""
        types = ", ".join(sorted(self.gpu_types))
        only = types if len(self.gpu_types) == 1 else None
        gpu_type = requested or self.gpu_type or only
        if gpu_type is None:
            if types:
                raise UsageError(
                    f"cluster={self.name} has GPU types {types}: name one, gpu_type=…"
                )
            return None
        if gpu_type == "any" or re.search("[|&,]", gpu_type):
            raise UsageError(
                f"gpu_type={gpu_type}: a study on a mix of GPU types compares nothing; name one"
            )
        if types and gpu_type not in self.gpu_types:
            hint = did_you_mean(alike(gpu_type, self.gpu_types))
            raise UsageError(
                f"gpu_type={gpu_type}: cluster={self.name} has {types}{hint}"
            )
        return gpu_type

    def nodes_for(self, gpus: int, gpu_type: str | None) -> int:
        """Return the fewest nodes for `gpus` GPUs of a type, which must divide over them."""
        if self.hosts:
            nodes = min(gpus, len(self.hosts))
            if gpus % nodes:
                raise UsageError(
                    f"gpus={gpus} does not divide over the {nodes} machines of cluster.hosts; take "
                    f"gpus={ceil(gpus / nodes) * nodes}, or give nodes= yourself"
                )
            return nodes
        per_node = self.gpu_types.get(gpu_type or "")
        if per_node is None:
            return 1
        nodes = ceil(gpus / per_node)
        if nodes and gpus % nodes:
            raise UsageError(
                f"gpus={gpus} does not divide over {nodes} nodes of {per_node} ({gpu_type}); "
                f"take gpus={nodes * per_node}, or give nodes= yourself"
            )
        return nodes

    def python_command(self, python: str) -> list[str]:
        """Return the command that starts the job's Python, in its container if there is one."""
        inside = self.python or python
        if self.container.image is None:
            return [inside]
        box = self.container
        command = [box.runtime, "exec", *box.options]
        command += ["--overlay", f"{box.overlay}:ro"] if box.overlay else []
        command += [word for bind in box.binds for word in ("--bind", bind)]
        start = f'{box.setup}; exec {shlex.quote(self.python or "python")} "$@"'
        return [*command, box.image or "", "/bin/bash", "-c", start, "python"]


def _check_hosts(hosts: Collection[str]) -> None:
    names = {name for name in hosts if re.fullmatch(r"\w[\w.-]*", name, re.ASCII)}
    if not names or len(names) < len(hosts):
        raise UsageError(
            f"cluster.hosts=[{','.join(hosts)}]: name each machine once, as ssh knows it, e.g. "
            "cluster.hosts=[a,b]; write user names into ~/.ssh/config"
        )


OPTIONS_BEFORE_1_0 = ("qos", "comment", "constraint", "wckey")
"""Options of sbatch that were keys of their own."""


def cluster_of(values: Mapping[str, Any]) -> Cluster:
    """Return the cluster of a study's cluster.json, which may be of a version before 1.0.

    Raises:
        ValidationError: a value is not of its type.
    """
    former = {name: values[name] for name in OPTIONS_BEFORE_1_0 if values.get(name)}
    known = {name: values[name] for name in Cluster.__struct_fields__ if name in values}
    if former:
        known["sbatch"] = former | known.get("sbatch", {})
    return msgspec.convert(known, Cluster)


def limit_of_host(limits: Mapping[str, int], host: str) -> int | None:
    """Return the limit of the longest pattern that matches a host; None if none matches.

    >>> [limit_of_host({"gh*": 60, "*": 10}, host) for host in ("gh001", "x1")]
    [60, 10]
    """
    matching = [pattern for pattern in limits if fnmatchcase(host, pattern)]
    return limits[max(matching, key=len)] if matching else None


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that a cell requests, per node; cells of one shape form one array."""

    nodes: int
    gpus_per_node: int  # 0: no GPU is requested
    gpu_type: str | None
    cpus_per_node: int
    mem_gb_per_node: int | None
    minutes: int

    def __str__(self) -> str:
        """For people, e.g. `1 node x 4 rtx8000, 12 CPUs, 30 min`."""
        nodes = counted(self.nodes, "node")
        gpus = ""
        if self.gpus_per_node:
            gpus = f" x {self.gpus_per_node} {self.gpu_type or 'GPU'}"
        memory = f", {self.mem_gb_per_node} GB" if self.mem_gb_per_node else ""
        return f"{nodes}{gpus}, {counted(self.cpus_per_node, 'CPU')}{memory}, {self.minutes} min"


def sbatch_options(shape: Shape, cluster: Cluster) -> dict[str, Any]:
    """Return a shape as sbatch options by their long names.

    Raises:
        UsageError: cluster.sbatch has what the program sets, or a value is not one line.
    """
    options: dict[str, Any] = {
        "nodes": shape.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": shape.cpus_per_node,
        "time": shape.minutes,
        **_site_options(cluster, sets_memory=shape.mem_gb_per_node is not None),
        "mem": f"{shape.mem_gb_per_node}G" if shape.mem_gb_per_node else None,
        "exclusive": cluster.isolate is Isolate.EXCLUSIVE or None,
        "dependency": "singleton" if cluster.isolate is Isolate.SERIAL else None,
    }
    options["requeue"] = None if options.get("no-requeue") else True
    if shape.gpus_per_node:
        options |= _gpu_options(shape, cluster, options.get("constraint"))
    return _checked(options)


def followup_options(cluster: Cluster, memory_gb: int) -> dict[str, Any]:
    """Return what a job without GPUs requests: what the site wants of every job, one CPU.

    It requests memory where cells do.
    """
    requests_memory = cluster.mem_gb_per_gpu is not None
    options = _site_options(cluster, sets_memory=requests_memory)
    options = {name: v for name, v in options.items() if not name.startswith(_OF_CELLS)}
    options |= {"nodes": 1, "ntasks": 1, "cpus-per-task": 1}
    if cluster.cpu_partition:
        # other nodes
        options |= {"partition": cluster.cpu_partition, "constraint": None}
    if requests_memory:
        options["mem"] = f"{memory_gb}G"
    return _checked(options)


_OF_CELLS = ("gpu", "gres", "hold")
"""The beginnings of options of the cells alone: of GPUs, and a hold, which their end waits for."""


def _site_options(cluster: Cluster, *, sets_memory: bool) -> dict[str, Any]:
    """Return the options that a site wants of every job."""
    return {
        "partition": cluster.partition,
        "account": cluster.account,
        **user_options(cluster.sbatch, sets_memory=sets_memory),
    }


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are set, each of one line."""
    for name, value in options.items():
        if not f"{name}{value}".isprintable():
            raise UsageError(
                f"sbatch's --{name} has a line break or a control character: write it in one line"
            )
    return {name: value for name, value in options.items() if value is not None}


def _gpu_options(
    shape: Shape, cluster: Cluster, constraint: str | None
) -> dict[str, Any]:
    gpu_type, count = shape.gpu_type, shape.gpus_per_node
    if cluster.gpu_request is GpuRequest.GRES_CONSTRAINT:
        both = "&".join(filter(None, (constraint, gpu_type)))
        return {"gres": f"gpu:{count}", "constraint": both or None}
    if cluster.gpu_request is GpuRequest.PARTITION:
        sizes = cluster.gpu_partitions.get(gpu_type or "", {})
        if count not in sizes:
            numbers = ", ".join(map(str, sorted(sizes)))
            raise UsageError(
                f"cluster={cluster.name} has no partition of {count} {gpu_type} on a node: "
                f"its partitions hold {numbers}"
            )
        return {"partition": sizes[count], "gres": f"gpu:{count}"}
    return {"gres": f"gpu:{gpu_type}:{count}" if gpu_type else f"gpu:{count}"}
