"""The hash of a cell, which later keys at their default leave unchanged."""

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from hpml_jobs.core.value import Value

_CELL = """
    gpus nodes batch strategy workload protocol epochs probe_s device gpu_type threads
    loader_workers seed repeat recipe set_epoch sync_buffers evaluate quantize
"""
_WORKLOAD = """
    name model data loss classes image_size images limit parameters lr momentum weight_decay
    test_batch
"""
HASHED_KEYS: Mapping[str, frozenset[str]] = {
    "Cell": frozenset(_CELL.split()),
    "Workload": frozenset(_WORKLOAD.split()),
    "Recipe": frozenset(
        (
            "name",
            "scaled",
            "reference_batch",
            "warmup_epochs",
            "drop_epochs",
            "decay_norm",
        )
    ),
    "Quantize": frozenset(("calibration", "percentile", "per_channel")),
}
"""The keys of version 0.4.0 by the class they belong to, which are hashed in any case.

Never add to them: a key that came later is hashed only where it is not at its default, so that
cells submitted before keep their hash and their slug, and finished ones are skipped.
"""


def digest_of(value: Value) -> str:
    """Return the hash (64 hex digits) of a value, its keys in the order of their definition."""
    return hashlib.sha256(msgspec.json.encode(_hashed(value))).hexdigest()


def _hashed(value: Value) -> dict[str, Any]:
    keys = {}
    for name, is_always_hashed, default in _keys(type(value)):
        setting = getattr(value, name)
        if is_always_hashed or setting != default:
            keys[name] = _hashed(setting) if isinstance(setting, Value) else setting
    return keys


@cache
def _keys(cls: type[Value]) -> tuple[tuple[str, bool, Any], ...]:
    """Return name, whether it is hashed in any case, and default of every key of a class."""
    always = HASHED_KEYS.get(cls.__name__, ())
    return tuple(
        (field.encode_name, field.name in always, _default(field))
        for field in msgspec.structs.fields(cls)
    )


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
