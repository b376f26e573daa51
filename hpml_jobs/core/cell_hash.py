"""The hash of a cell, which later keys at their default leave unchanged."""

import hashlib
from collections.abc import Mapping
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
        ("name", "scaled", "reference_batch", "warmup_epochs", "drop_epochs", "decay_norm")
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
    classes = (cls.__name__ for cls in type(value).__mro__)
    always = next((HASHED_KEYS[name] for name in classes if name in HASHED_KEYS), frozenset())
    keys = {}
    for field in msgspec.structs.fields(value):
        setting = getattr(value, field.name)
        if field.name in always or setting != _default(field):
            keys[field.encode_name] = _hashed(setting) if isinstance(setting, Value) else setting
    return keys


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
