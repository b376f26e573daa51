"""The kind of value that all of the vocabulary is made of: frozen, typed, read from JSON."""

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen value that JSON and configs decode into with every type checked."""
