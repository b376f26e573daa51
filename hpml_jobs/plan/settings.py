"""What one combination of the command line asks for, with every type checked."""

import types
import typing
from typing import Any

import msgspec

from hpml_jobs.core.cell import Device, Protocol, Strategy, SyncBuffers
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.quantization import Quantize
from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.value import Value
from hpml_jobs.core.workload import Workload
from hpml_jobs.errors import UsageError


class Data(Value, frozen=True, kw_only=True):
    """Where data sets lie, and how much of one is used."""

    root: str | None = None
    limit: int | None = None


class Ladder(Value, frozen=True, kw_only=True):
    """Growing batches: `start`, then `factor` times as many, until one does not fit."""

    start: int | None = None
    factor: int = 4


class AskedQuantize(Value, frozen=True, kw_only=True):
    """Quantization as it is asked for; without a number of calibration images there is none."""

    calibration: int | None = None
    percentile: float = 99.9
    per_channel: bool = False

    @property
    def settled(self) -> Quantize | None:
        """What the cell is to do."""
        if self.calibration is None:
            return None
        return Quantize(
            calibration=self.calibration,
            percentile=self.percentile,
            per_channel=self.per_channel,
        )


class Settings(Value, frozen=True, kw_only=True):
    """conf/config.yaml, composed: the fields are explained there."""

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
    quantize: AskedQuantize
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
        """Refuse what no cluster could do."""
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
            raise UsageError("protocol=imported: take lab or full; hpml-jobs import reads a CSV")
        if self.data.limit is not None and self.data.limit < 1:
            raise UsageError(f"data.limit={self.data.limit}: must be 1 or more images")
        if self.workload.images is not None and self.workload.images < 1:
            raise UsageError(f"workload.images={self.workload.images}: must be 1 or more")


_PLACE, _NO_CHOICE = " - at `$", "enum value"
"""msgspec's words, which has no field for either: before a key's path, and of a wrong choice."""


def settle(values: dict[str, Any]) -> Settings:
    """Check a composed configuration; the key at fault is named as it is typed."""
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError as fault:
        words, _, path = str(fault).partition(_PLACE)
        key = path.rstrip("`").lstrip(".")
        value = values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None  # type: ignore[assignment]
        if _NO_CHOICE in words:
            words = f"choose one of {_choices(key)}"
        shown = f"{key}={value}" if key else "the configuration"
        raise UsageError(f"{shown}: {words[0].lower()}{words[1:].replace('`', '')}") from fault


def _annotation(key: str) -> Any:
    """The type of a dotted key of Settings; None where there is no such key."""
    kind: Any = Settings
    for part in key.split("."):
        if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct):
            return None
        kind = typing.get_type_hints(kind).get(part)
    return kind


def _choices(key: str) -> str:
    kind = _annotation(key)
    members = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return ", ".join(str(choice) for member in members if member for choice in _values(member))


def _values(kind: Any) -> list[str]:
    return [member.value for member in kind] if hasattr(kind, "__members__") else []


def typed_value(key: str, value: Any, text: str | None = None) -> Any:
    """A value as the key wants it: a study named 2026_10 is text (as it was typed), no number."""
    kind = _annotation(key)
    accepts = set(typing.get_args(kind)) if isinstance(kind, types.UnionType) else {kind}
    if str in accepts and isinstance(value, int | float):
        return str(value) if text is None else text
    return value
