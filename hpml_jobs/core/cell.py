"""One measurement: a frozen, checked `Cell`, its readable slug and its hash."""

from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from math import ceil, inf
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.core.built_in import GPT
from hpml_jobs.core.cell_hash import digest_of
from hpml_jobs.core.cluster import Shape
from hpml_jobs.core.errors import UsageError, refuse_below
from hpml_jobs.core.formulas import iterations
from hpml_jobs.core.quantize_settings import Quantize
from hpml_jobs.core.recipe import PLAIN, Recipe
from hpml_jobs.core.script import Script
from hpml_jobs.core.strategies import (
    Device,
    Loader,
    Strategy,
    SyncBuffers,
    is_baseline,
)
from hpml_jobs.core.text import VERSION
from hpml_jobs.core.training_path import TrainingPath
from hpml_jobs.core.value import UnreadableSchemaError, Upgrade, Value, decode_upgraded
from hpml_jobs.core.workload import Workload, slug_text

SCHEMA = 3
"""Version of cell.json.

1: first. 2: full protocol (epochs, probe_s, link_gb_per_s, trace). 3: recipe, set_epoch,
sync_buffers, evaluate, quantize (0.4.0).
"""

UPGRADES: dict[int, Upgrade] = {}
"""From each released schema to the next one. Schema 3 is the first that stays readable."""

SLUG_DIGITS = 6
"""Digits of the hash in a cell's name, unless another cell of the study has the same."""


class Outcome(StrEnum):
    """The outcome of a cell; until it has one: pending, running, missing or unknown."""

    OK = "ok"
    OOM = "oom"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    NODE_FAIL = "node_fail"
    CANCELLED = "cancelled"
    FAILED = "failed"
    INVALID = "invalid"
    PENDING = "pending"
    RUNNING = "running"
    MISSING = "missing"
    UNKNOWN = "unknown"

    @property
    def active(self) -> bool:
        """Whether the cell has a job that is pending or running."""
        return self in (Outcome.PENDING, Outcome.RUNNING)

    @property
    def may_run(self) -> bool:
        """Whether the cell's job is active, or may be: nothing is submitted beside it."""
        return self.active or self is Outcome.UNKNOWN

    @property
    def finished(self) -> bool:
        """Whether the cell has its result: numbers, or that memory does not suffice."""
        return self in (Outcome.OK, Outcome.OOM)


class Protocol(StrEnum):
    """The epochs and instruments of a measurement.

    `lab`: a warm-up epoch and a timed epoch. `full`: then an instrumented epoch, one without
    gradient exchange, and the microbenchmark of collectives. `outside`: a
    script's warm-up and timed window, and what else can be measured of it from outside. `imported`:
    nothing; the timings come from a CSV file.
    """

    LAB = "lab"
    FULL = "full"
    OUTSIDE = "outside"
    IMPORTED = "imported"

    @property
    def epochs(self) -> int:
        """Number of training epochs that the protocol needs."""
        return {"lab": 2, "full": 3, "outside": 2}.get(self.value, 0)


class Origin(NamedTuple):
    """What is true of all cells whose numbers come from one place.

    With `has_ranks` processes were observed: their epochs, phases and messages. With `has_other`
    there is time in an epoch that no phase of training accounts for. With `has_facts` the software
    and hardware of the training are recorded. With `has_fixed_epochs` the settings of a cell say
    what an epoch does, so that all of its epochs do the same. Where `ranks_meet` before an epoch,
    they begin it together. `loading_remedy` is empty where that of the check helps.
    """

    where: str = "here"
    has_ranks: bool = True
    has_other: bool = False
    has_facts: bool = True
    has_fixed_epochs: bool = True
    ranks_meet: bool = True
    loading_remedy: str = ""


OWN_LOOP = Origin()
SCRIPT = Origin(
    where="from outside",
    has_other=True,
    has_fixed_epochs=False,
    ranks_meet=False,
    loading_remedy="give the script's DataLoader more num_workers=, or use faster storage",
)
IMPORT = Origin(where="elsewhere", has_ranks=False, has_facts=False)


class Cell(Value, frozen=True, kw_only=True, dict=True, forbid_unknown_fields=False):
    """One point of a study: everything that can change its result, and nothing else.

    `batch` is per GPU (per process with `device=cpu`); `threads` and `loader_workers` are per
    process. `epochs` are those of training, of `epoch_iterations` each where they were requested;
    `probe_s` is what the microbenchmark may take.
    Without `set_epoch` every epoch of a rank has the same samples in the same order.
    `sync_buffers` None is the strategy's default. `evaluate` tests after every epoch. `path` is how
    an iteration computes. A field of a version before 1.0 is ignored, but for the hash in a cell's
    name, which has it where it was not at its default. Of a `script` only gpus,
    nodes, batch, seed and threads take effect, where its arguments name them; strategy says what it
    does by itself.
    """

    gpus: int
    nodes: int = 1
    batch: int
    strategy: Strategy
    workload: Workload
    protocol: Protocol = Protocol.FULL
    epochs: int = 3
    probe_s: float = 20.0
    device: Device = Device.CUDA
    gpu_type: str | None = None
    threads: int = 1
    loader_workers: int = 2
    seed: int = 0
    repeat: int = 0
    recipe: Recipe = Recipe()
    set_epoch: bool = True
    sync_buffers: SyncBuffers | None = None
    evaluate: bool = False
    quantize: Quantize | None = None
    loader: Loader = Loader.WORKERS
    path: TrainingPath = TrainingPath()
    epoch_iterations: int | None = None
    script: Script | None = None

    def __hash__(self) -> int:
        """Return a hash; a mapping has none, so that its parts do not take part."""
        return hash(
            (
                self.gpus,
                self.batch,
                self.strategy,
                self.workload,
                self.seed,
                self.repeat,
            )
        )

    def __post_init__(self) -> None:
        """Refuse cells that cannot be measured, and show the arithmetic."""
        for name, least in _LEAST.items():
            refuse_below(least, name, getattr(self, name))
        if self.epochs < self.protocol.epochs:
            least = self.protocol.epochs
            raise UsageError(
                f"epochs={self.epochs}: protocol={self.protocol.value} needs {least} or more"
            )
        if self.loader is Loader.DEVICE and self.loader_workers:
            raise UsageError(
                f"loader_workers={self.loader_workers} with loader=device: no worker loads "
                f"{self.workload.samples_name}; leave loader_workers= out"
            )
        self._check_strategy()
        self._check_treatment()
        self.path.check(self.strategy, self.device, self.gpu_type)
        self._check_path()
        images = self.workload.images
        if images is not None and self.batch > (share := ceil(images / self.gpus)):
            samples = f"{share:,} {self.workload.samples_name}"
            raise UsageError(
                f"batch={self.batch} is more than the {samples} of one GPU "
                f"({images:,} over gpus={self.gpus}); take batch<={share}"
            )

    def _check_strategy(self) -> None:
        if self.gpus % self.nodes:
            raise UsageError(
                f"gpus={self.gpus} does not divide over nodes={self.nodes}; "
                f"take gpus={ceil(self.gpus / self.nodes) * self.nodes} or another nodes="
            )
        traffic = self.strategy.traffic
        if self.gpus < traffic.min_gpus and self.protocol is not Protocol.IMPORTED:
            raise UsageError(
                f"strategy={self.strategy.value} with gpus={self.gpus}: {traffic.refusal}; use "
                f"gpus={traffic.min_gpus} or more, or strategy=single"
            )
        for key, is_allowed, most in (
            ("gpus", self.gpus <= (traffic.max_gpus or inf), traffic.max_gpus),
            (
                "device",
                self.device in traffic.devices,
                " or ".join(sorted(traffic.devices)),
            ),
            ("nodes", self.nodes <= (traffic.max_nodes or inf), traffic.max_nodes),
        ):
            if not is_allowed:
                raise UsageError(
                    f"strategy={self.strategy.value} with {key}={getattr(self, key)}: "
                    f"{traffic.refusal}; use {key}={most}, or strategy=ddp"
                )

    def _check_path(self) -> None:
        """Refuse a path that the number of images or their kind does not allow."""
        path, images = self.path, self.workload.images
        batches = None if images is None else iterations(images, self.gpus, self.batch)
        if batches is not None and path.accumulate > batches:
            raise UsageError(
                f"accumulate={path.accumulate} is more than the {batches} batches of an epoch "
                f"(batch={self.batch} on gpus={self.gpus}); use accumulate<={batches} or a smaller "
                "batch="
            )
        if path.channels_last and self.workload.has_tokens:
            raise UsageError(
                f"channels_last=true with workload.data={self.workload.data}: tokens have no "
                "channels; leave channels_last out"
            )

    def _check_treatment(self) -> None:
        if self.protocol is not Protocol.IMPORTED:
            self.recipe.check(self.epochs, self.strategy, self.workload)
        if not self.set_epoch and not self.strategy.under_torchrun:
            raise UsageError(
                f"set_epoch=false with strategy={self.strategy.value}: one process shuffles its "
                f"{self.workload.samples_name} anew by itself; take strategy=ddp with gpus=2 or "
                "more"
            )
        self._check_buffers()
        if self.quantize is not None:
            self.quantize.check(self.strategy, self.workload)

    def _check_buffers(self) -> None:
        strategy, buffers = self.strategy, self.sync_buffers
        default = strategy.traffic.sync_buffers
        if buffers not in (None, default) and not strategy.traffic.may_sync_buffers:
            raise UsageError(
                f"sync_buffers={buffers} with strategy={strategy.value}: only ddp can choose, "
                f"{strategy.value} is sync_buffers={default.value}"
            )
        if buffers is not None and self.workload.model == GPT:
            raise UsageError(
                f"sync_buffers={buffers} with workload.model={GPT}: it has no BatchNorm and no "
                "buffers; leave sync_buffers= out"
            )
        if buffers is SyncBuffers.SYNCBN and self.protocol is Protocol.FULL:
            raise UsageError(
                "sync_buffers=syncbn with protocol=full: its messages inside forward and backward "
                "are not instrumented; take protocol=lab"
            )

    @property
    def without_code(self) -> "Cell":
        """The cell without the user's code and data, and what is counted of them."""
        without = {"code": (), "imported": (), "data_sha256": None, "images": None}
        workload = msgspec.structs.replace(self.workload, **without, parameters=None)
        return msgspec.structs.replace(self, workload=workload)

    @property
    def treatment(self) -> str:
        """Return the settings that differ from the default, apart from the place, in words.

        Those of the training path come first.
        """
        parts = [*filter(None, (self.path.label, self.recipe_label))]
        parts += [] if self.set_epoch else ["no set_epoch"]
        if self.sync_buffers is SyncBuffers.SYNCBN:
            parts.append("SyncBatchNorm")
        elif self.sync_buffers is not None:
            parts.append(f"buffers {self.sync_buffers.value}")
        return ", ".join(parts)

    @property
    def recipe_label(self) -> str:
        """Return the recipe in words, empty for the plain one.

        A cosine, of cells before 1.0, is a condition instead: they have tables of their own.
        """
        return "" if self.recipe.final_share is not None else self.recipe.label

    @property
    def is_baseline(self) -> bool:
        """Whether it is the baseline of its training path: the plain loop on one GPU."""
        return is_baseline(self.strategy, self.treatment, self.path.label)

    @property
    def searches_kernels(self) -> bool:
        """Whether cuDNN searches its fastest kernels, which the warm-up epoch pays for.

        Not under dp: the kernels that were chosen are kept by thread, and DataParallel
        starts new threads in every forward, which would all search again (0.2 to 0.5 s per
        iteration).
        """
        keeps_threads = not self.strategy.traffic.forward_in_new_threads
        return self.device is Device.CUDA and keeps_threads

    @property
    def replicas_share_buffers(self) -> bool:
        """Whether replicas test with the same BatchNorm buffers; else each rank has its own."""
        buffers = self.sync_buffers or self.strategy.traffic.sync_buffers
        return buffers is not SyncBuffers.OFF

    @property
    def processes(self) -> int:
        """Worker processes in all."""
        return self.gpus if self.strategy.under_torchrun else 1

    @property
    def gpus_per_node(self) -> int:
        """GPUs (processes with `device=cpu`) on each node."""
        return self.gpus // self.nodes

    @property
    def global_batch(self) -> int:
        """Samples of one iteration over all GPUs."""
        return self.gpus * self.batch * self.path.accumulate

    @cached_property
    def digest(self) -> str:
        """Hash (64 hex digits) of everything that can change the result; see `cell_hash`."""
        return digest_of(self)

    @property
    def origin(self) -> Origin:
        """Where its numbers come from."""
        if self.protocol is Protocol.IMPORTED:
            return IMPORT
        return OWN_LOOP if self.script is None else SCRIPT

    @property
    def slug(self) -> str:
        """A readable name, e.g. `ddp-4gpu-b512-digits-1a2b3c`; `slug_of` has more digits."""
        return self.slug_of(SLUG_DIGITS)

    def has_slug(self, slug: str) -> bool:
        """Return whether a name is this cell's: with 6 digits of its hash, or with more."""
        digits = slug.rpartition("-")[2]
        return len(digits) >= SLUG_DIGITS and self.digest.startswith(digits)

    def slug_of(self, digits: int) -> str:
        """Return the cell's name with this many digits of its hash."""
        unit = "gpu" if self.device is Device.CUDA else "proc"
        parts = [self.strategy.value, f"{self.gpus}{unit}"]
        parts += [f"{self.nodes}nodes"] if self.nodes > 1 else []
        parts += [f"b{self.batch}", *self.workload.slug_parts]
        is_plain = self.recipe == PLAIN
        parts += [] if is_plain else [slug_text(self.recipe.name, 20)]
        parts += [] if self.set_epoch else ["no_set_epoch"]
        parts += [f"sync_{self.sync_buffers.value}"] if self.sync_buffers else []
        parts += ["quantize"] if self.quantize else []
        parts += ["loader_device"] if self.loader is Loader.DEVICE else []
        parts += self.path.slug_parts
        parts += [f"{self.epoch_iterations}iterations"] if self.epoch_iterations else []
        parts += [f"s{self.seed}"] if self.seed else []
        parts += [f"r{self.repeat}"] if self.repeat else []
        return "-".join([*parts, self.digest[:digits]])

    def slugs(self) -> Iterator[str]:
        """Yield the names it may have in a study, from the shortest."""
        for digits in range(SLUG_DIGITS, len(self.digest) + 1):
            yield self.slug_of(digits)


_LEAST = {
    "gpus": 1,
    "nodes": 1,
    "batch": 1,
    "threads": 1,
    "loader_workers": 0,
    "seed": 0,
    "repeat": 0,
    "probe_s": 0,
}


class CellFile(Value, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The content of cell.json: the cell, and where its data and the user's code are.

    `supersedes` is the attempt whose record a `rerun=true` may replace. `trace` keeps the
    profiler's trace; `cancel_below_utilization` has the cluster's limits of GPU utilization, in %,
    by host.
    `shape` is what the cell requests of SLURM. `code_commit` is the commit of the working tree of
    the user's code, `code_dirty` whether its source files differ from it; both are None where that
    is unknown.
    """

    cell: Cell
    data_root: str
    code_root: str
    trace: bool = False
    cancel_below_utilization: dict[str, int] = {}
    supersedes: str | None = None
    shape: Shape | None = None
    code_commit: str | None = None
    code_dirty: bool | None = None
    hpml_jobs: str = VERSION
    schema: int = SCHEMA

    @property
    def import_root(self) -> Path:
        """The folder that the user's modules are below: of a script, its own."""
        root, script = Path(self.code_root), self.cell.script
        is_file = script is not None and not script.module
        return (root / script.path).parent if script and is_file else root


def decode_cell_file(text: bytes, place: str) -> CellFile:
    """Read cell.json; a wrong file is named with the place of the fault inside it."""
    try:
        return decode_upgraded(text, CellFile, SCHEMA, UPGRADES)
    except UnreadableSchemaError as fault:
        raise UsageError(
            f"{place} has {fault}: use the hpml_jobs that wrote it "
            f"({fault.writer}), or submit the cell under another study="
        ) from fault
    # not UTF-8, not JSON, not a cell's file, not a cell
    except (ValueError, UsageError) as fault:
        raise UsageError(f"{place} cannot be read: {fault}") from fault
