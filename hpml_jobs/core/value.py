"""The base class of what crosses a file or a process, and reading its JSON, of old schemas too."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from statistics import fmean
from typing import Any, TypeVar

import msgspec

from hpml_jobs.core.text import VERSION

A = TypeVar("A")
K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen struct; JSON and configs are decoded into it with every type checked."""


def known(values: Iterable[T | None]) -> list[T]:
    """Return the values that are known: not None."""
    return [value for value in values if value is not None]


def by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, keys and values in the order in which they come."""
    values: dict[K, list[V]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values


def known_mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known; None without one.

    >>> known_mean([1.0, None, 3.0]), known_mean([None])
    (2.0, None)
    """
    of_known = known(values)
    return fmean(of_known) if of_known else None


def decode_json(text: bytes, kind: type[T]) -> T:
    """Return the value of a JSON text, its types checked.

    Raises:
        ValueError: it is not JSON of this kind, or is nested too deeply.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError as fault:
        raise ValueError("nested too deeply") from fault


Document = dict[str, Any]
"""A decoded JSON file: `schema` is its version, `hpml_jobs` the program that wrote it."""

Upgrade = Callable[[Document], Document]
"""Return a document of the next schema; the argument is not changed."""


class UnreadableSchemaError(ValueError):
    """A schema that is too old, too new, or not a number; `writer` is the program's version."""

    def __init__(self, text: str, writer: object) -> None:
        super().__init__(text)
        self.writer = writer


class _Schema(msgspec.Struct):
    schema: Any = None


def decode_upgraded(
    text: bytes, kind: type[T], current: int, upgrades: Mapping[int, Upgrade]
) -> T:
    """Return the value of a JSON file of the `current` schema, or of an older one.

    Raises:
        UnreadableSchemaError: as `upgrade`.
        ValueError: it is not UTF-8, not JSON, no object of this kind, or nested too deeply.
    """
    # thousands of records: half the time
    if decode_json(text, _Schema).schema == current:
        return decode_json(text, kind)
    return msgspec.convert(upgrade(decode_json(text, dict), current, upgrades), kind)


def upgrade(
    document: Document, current: int, upgrades: Mapping[int, Upgrade]
) -> Document:
    """Bring a decoded document to the `current` schema.

    `upgrades` maps a schema to the function that leads to the next one; the oldest key is the
    oldest schema that can be read.

    Raises:
        UnreadableSchemaError: the schema is newer than `current`, older than all `upgrades`, or
            no number.
        ValueError: the document does not have the form of its schema.

    >>> renamed = {1: lambda old: {"epoch_s": old["seconds"]}}
    >>> upgrade({"schema": 1, "seconds": 2.0}, 2, renamed)
    {'epoch_s': 2.0, 'schema': 2}
    >>> upgrade({"schema": 3}, 2, renamed)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    hpml_jobs.core.value.UnreadableSchemaError: schema 3, ... reads 1 to 2
    """
    schema = document.get("schema")
    oldest = min(upgrades, default=current)
    if (
        isinstance(schema, bool)
        or not isinstance(schema, int)
        or not oldest <= schema <= current
    ):
        readable = str(current) if oldest == current else f"{oldest} to {current}"
        raise UnreadableSchemaError(
            f"schema {schema}, this hpml_jobs {VERSION} reads {readable}",
            document.get("hpml_jobs", "another"),
        )
    for step in range(schema, current):
        try:
            document = upgrades[step](document) | {"schema": step + 1}
        except (AttributeError, KeyError, TypeError, ValueError) as fault:
            raise ValueError(f"not a document of schema {step}: {fault}") from fault
    return document


def cached_on_value(make: Callable[[V, A], T]) -> Callable[[V, A], T]:
    """Keep what a function makes of a value with a `__dict__`, by what it is about.

    Checks and tables ask for the same of thousands of records.
    """

    @wraps(make)
    def cached_value(value: V, about: A) -> T:
        values: dict[object, T] = value.__dict__.setdefault("kept values", {})
        key = make, about
        if key not in values:
            values[key] = make(value, about)
        return values[key]

    return cached_value
