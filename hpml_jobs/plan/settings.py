"""`Settings`, the composed configuration of a combination with every type checked; `Sweep`."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.errors import UsageError, refuse_below, refuse_not_positive
from hpml_jobs.core.quantize_settings import QuantizeSettings
from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.script import Script, ScriptLauncher
from hpml_jobs.core.strategies import Device, Loader, Strategy, SyncBuffers
from hpml_jobs.core.training_path import CompileMode, Precision, TrainingPath
from hpml_jobs.core.value import Value
from hpml_jobs.core.workload import Workload
from hpml_jobs.plan.auto import Goal
from hpml_jobs.plan.removed import refuse_removed

PROTOCOLS = (Protocol.LAB, Protocol.FULL)
"""The protocols that a submission chooses; script= and import have their own."""


Notify = Callable[[str], None]
"""Says a decision to the user."""


class DataSettings(Value, frozen=True, kw_only=True):
    """The folder of the data sets, and the number of images to use of one."""

    root: str | None = None
    limit: int | None = None


class Settings(Value, frozen=True, kw_only=True):
    """conf/config.yaml, composed; its comments explain the fields."""

    cluster: Cluster
    workload: Workload
    recipe: Recipe
    gpus: int
    batch: int
    strategy: Strategy
    nodes: int | None
    gpu_type: str | None
    device: Device | None
    threads: int
    loader: Loader
    loader_workers: int | None
    protocol: Protocol
    epochs: int | None
    iterations: int | None
    probe_s: float
    seed: int
    repeats: int
    set_epoch: bool
    sync_buffers: SyncBuffers | None
    evaluate: bool
    precision: Precision | None
    channels_last: bool
    compile: bool | CompileMode
    accumulate: int
    global_batch: int | None
    data: DataSettings
    study: str | None
    outputs: str
    minutes: int
    max_gpus: int | None
    min_efficiency: float
    gpu_hours: float | None
    pack: bool
    collect_after: bool
    trace: bool
    rerun: bool
    script: str | None
    args: str
    launcher: ScriptLauncher
    window: tuple[int, int] | None
    stop: bool
    shared_files: bool
    grid: Any = None
    quantize: QuantizeSettings

    def __post_init__(self) -> None:
        """Refuse values that no cluster accepts."""
        for key, least in _LEAST.items():
            refuse_below(least, key, operator.attrgetter(key)(self))
        self._check_cluster()
        if not 0 < self.min_efficiency <= 1:
            raise UsageError(
                f"min_efficiency={self.min_efficiency:g}: give a share, e.g. 0.6 for 60 %"
            )
        refuse_not_positive("gpu_hours", self.gpu_hours)
        if self.recipe.final_share is not None:
            refuse_removed("recipe.final_share")
        if not self.outputs.strip():
            raise UsageError(
                "outputs=: name the folder of the studies, e.g. outputs=outputs"
            )
        if self.protocol not in PROTOCOLS:
            raise UsageError(
                f"protocol={self.protocol.value}: use lab or full; hpml-jobs import reads a CSV, "
                "and script= measures from outside"
            )
        if self.workload.sources:
            raise UsageError(
                "workload.code is read from the files of your functions: leave it out"
            )
        if self.workload.data_sha256:
            raise UsageError(
                "workload.data_sha256 is read from the files in data.root: leave it out"
            )
        self._derive()

    def _derive(self) -> None:
        """Set what follows from other keys: the workload of a script, a batch, a limit of data."""
        script = self.script_of_cell
        if script is not None:
            workload = msgspec.structs.replace(self.workload, name=script.name)
            msgspec.structs.force_setattr(self, "workload", workload)
        if self.global_batch is not None:
            msgspec.structs.force_setattr(self, "batch", self._share(self.global_batch))
        if self.iterations is not None:
            msgspec.structs.force_setattr(self, "data", self._cut(self.iterations))

    @property
    def script_of_cell(self) -> Script | None:
        """The script of a cell, or None."""
        if self.script is None:
            return None
        names = ("args", "launcher", "window", "stop")
        return Script(path=self.script, **{name: getattr(self, name) for name in names})

    def _check_cluster(self) -> None:
        cluster = self.cluster
        for pattern, percent in cluster.cancel_below_utilization.items():
            if not 0 < percent <= 100:
                key = f"cluster.cancel_below_utilization={{{pattern}: {percent}}}"
                raise UsageError(f"{key}: give a percentage from 1 to 100")
        for gpu_type, gpus in cluster.gpu_types.items():
            refuse_below(1, f"cluster.gpu_types.{gpu_type}", gpus)

    def _share(self, global_batch: int) -> int:
        """Return the batch per GPU of a global batch.

        Raises:
            UsageError: it does not divide over the GPUs and the accumulated batches.
        """
        parts = max(1, self.gpus) * max(1, self.accumulate)
        if global_batch < 1 or global_batch % parts:
            near = max(1, global_batch // parts) * parts
            raise UsageError(
                f"global_batch={global_batch} does not divide over gpus={self.gpus} x "
                f"accumulate={self.accumulate}; use global_batch={near} or {near + parts}"
            )
        return global_batch // parts

    def _cut(self, iterations: int) -> DataSettings:
        """Return the data with the samples of so many iterations.

        Raises:
            UsageError: another key gives the length of a cell.
        """
        for key in ("data.limit", "epochs"):
            value = operator.attrgetter(key)(self)
            if value is not None:
                raise UsageError(
                    f"iterations={iterations} with {key}={value}: both give the length of a cell; "
                    "leave one out"
                )
        samples = iterations * self.gpus * self.batch * self.accumulate
        return msgspec.structs.replace(self.data, limit=samples)

    def path_on(self, device: Device) -> TrainingPath:
        """Return the training path of a cell on a device; on the CPU, fp32 is the default."""
        is_default = device is Device.CPU and self.precision is Precision.FP32
        return TrainingPath(
            precision=None if is_default else self.precision,
            channels_last=self.channels_last,
            compile=CompileMode.DEFAULT
            if self.compile is True
            else self.compile or None,
            accumulate=self.accumulate,
        )


_LEAST = {
    "minutes": 1,
    "max_gpus": 1,
    "repeats": 1,
    "iterations": 2,
    "nodes": 1,
    "data.limit": 1,
    "workload.images": 1,
    "workload.classes": 1,
    "workload.image_size": 1,
    "workload.parameters": 1,
    "cluster.mem_gb_per_gpu": 1,
    "cluster.gpu_hours_budget": 0,
    "cluster.confirm_gpu_hours": 0,
}
"""The smallest value of each number that no cell or shape checks; null is always accepted."""


class Sweep(NamedTuple):
    """All combinations, the decisions made on the way as sentences, and the origin of each value.

    `blocks` are the names of the grid's blocks that the combinations are of, empty without one.
    `detected` is the sentence that says why `cluster=auto` became this profile; empty where the
    profile was named. `goal` is that of `auto`.
    """

    settings: list[Settings]
    notes: list[str]
    origins: dict[str, str]
    blocks: list[str]
    detected: str = ""
    goal: Goal | None = None

    @property
    def first(self) -> Settings:
        """The first combination: all have its values of what a study has only one of."""
        return self.settings[0]
