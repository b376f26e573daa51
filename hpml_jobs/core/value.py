"""The base class of everything that crosses a file or a process: frozen, typed, checked."""

from typing import TypeVar

import msgspec

T = TypeVar("T")


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen struct; JSON and configs are decoded into it with every type checked."""


def decode_json(text: bytes, kind: type[T]) -> T:
    """Return the value of a JSON text, its types checked.

    Raises:
        ValueError: it is not JSON of this kind, or is nested too deeply.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError as fault:
        raise ValueError("nested too deeply") from fault
