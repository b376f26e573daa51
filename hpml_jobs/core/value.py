"""The base class of everything that crosses a file or a process: frozen, typed, checked."""

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen struct; JSON and configs are decoded into it with every type checked."""
