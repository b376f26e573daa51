"""`Settings`: the composed configuration of one combination, with every type checked."""

import types
import typing
from typing import Any

import msgspec

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.quantization import Quantize
from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.strategies import Device, Strategy, SyncBuffers
from hpml_jobs.core.value import Value
from hpml_jobs.core.workload import Workload
from hpml_jobs.errors import UsageError


class Data(Value, frozen=True, kw_only=True):
    """The folder of the data sets, and the number of images to use of one."""

    root: str | None = None
    limit: int | None = None


class Ladder(Value, frozen=True, kw_only=True):
    """A ladder of batches: `start`, then `factor` times as many, until one does not fit."""

    start: int | None = None
    factor: int = 4


class QuantizeSettings(Value, frozen=True, kw_only=True):
    """The `quantize.` keys; without a number of calibration images nothing is quantized."""

    calibration: int | None = None
    percentile: float = 99.9
    per_channel: bool = False

    @property
    def for_cell(self) -> Quantize | None:
        """The quantization of a cell, or None."""
        if self.calibration is None:
            return None
        return Quantize(
            calibration=self.calibration,
            percentile=self.percentile,
            per_channel=self.per_channel,
        )


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
    loader_workers: int
    protocol: Protocol
    epochs: int | None
    probe_s: float
    seed: int
    repeats: int
    set_epoch: bool
    sync_buffers: SyncBuffers | None
    evaluate: bool
    quantize: QuantizeSettings
    baseline: Strategy
    data: Data
    study: str | None
    outputs: str
    minutes: int
    ladder: Ladder
    pack: bool
    largest_batch: int
    collect_after: bool
    retries: int
    trace: bool
    rerun: bool
    grid: Any = None

    def __post_init__(self) -> None:
        """Refuse values that no cluster accepts."""
        if self.minutes < 1:
            raise UsageError(f"minutes={self.minutes}: a time limit is at least 1 minute")
        if self.cluster.max_minutes and self.minutes > self.cluster.max_minutes:
            raise UsageError(
                f"minutes={self.minutes}: cluster={self.cluster.name} allows at most "
                f"{self.cluster.max_minutes} (cluster.max_minutes)"
            )
        if self.retries < 0:
            raise UsageError(f"retries={self.retries}: must be 0 or more")
        if self.ladder.start is not None and (self.ladder.start < 1 or self.ladder.factor < 2):
            raise UsageError(
                f"ladder.start={self.ladder.start} ladder.factor={self.ladder.factor}: a ladder "
                "starts at 1 or more and grows by 2 or more"
            )
        if self.repeats < 1:
            raise UsageError(f"repeats={self.repeats}: must be 1 or more")
        if self.nodes is not None and self.nodes < 1:
            raise UsageError(f"nodes={self.nodes}: must be 1 or more")
        if self.baseline not in (Strategy.SINGLE, Strategy.DDP):
            raise UsageError(
                f"baseline={self.baseline.value}: the baseline is single (the plain loop) or ddp"
            )
        if self.protocol is Protocol.IMPORTED:
            raise UsageError("protocol=imported: use lab or full; hpml-jobs import reads a CSV")
        if self.data.limit is not None and self.data.limit < 1:
            raise UsageError(f"data.limit={self.data.limit}: must be 1 or more images")
        if self.workload.code:
            raise UsageError("workload.code is read from the files of your functions: leave it out")
        if self.workload.images is not None and self.workload.images < 1:
            raise UsageError(f"workload.images={self.workload.images}: must be 1 or more")


_PLACE = " - at `$"
"""In msgspec's messages, the text before the path of a key."""

_NO_CHOICE = "enum value"
"""In msgspec's messages, what a wrong choice is called."""


def make_settings(values: dict[str, Any]) -> Settings:
    """Return the settings of a composed configuration.

    Raises:
        UsageError: a wrong type or choice; the message names the key as it is typed.
    """
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(_PLACE)
        key = path.rstrip("`").lstrip(".")
        value = values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None  # type: ignore[assignment]
        if _NO_CHOICE in problem:
            problem = f"choose one of {_choices(key)}"
        where = f"{key}={value}" if key else "the configuration"
        problem = f"{problem[0].lower()}{problem[1:].replace('`', '')}"
        raise UsageError(f"{where}: {problem}") from error


def typed_value(key: str, value: Any, text: str | None = None) -> Any:
    """Return a value with the type of its key; `text` is how it was typed.

    A study named 2026_10 is text, although a parser reads a number.
    """
    annotation = _annotation(key)
    is_union = isinstance(annotation, types.UnionType)
    accepted = set(typing.get_args(annotation)) if is_union else {annotation}
    if str in accepted and isinstance(value, int | float):
        return str(value) if text is None else text
    return value


def _annotation(key: str) -> Any:
    """Return the type of a dotted key of `Settings`; None for an unknown key."""
    annotation: Any = Settings
    for part in key.split("."):
        if not isinstance(annotation, type) or not issubclass(annotation, msgspec.Struct):
            return None
        annotation = typing.get_type_hints(annotation).get(part)
    return annotation


def _choices(key: str) -> str:
    """Return the words that a key accepts, separated by commas."""
    annotation = _annotation(key)
    is_union = isinstance(annotation, types.UnionType)
    members = typing.get_args(annotation) if is_union else (annotation,)
    enums = [member for member in members if hasattr(member, "__members__")]
    return ", ".join(choice.value for enum in enums for choice in enum)
