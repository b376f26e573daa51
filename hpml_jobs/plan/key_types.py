"""The types of keys, and the words that a key accepts; without Hydra, for which a shell waits."""

import types
import typing
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec

from hpml_jobs.plan.settings import PROTOCOLS, Settings

NAMES_OF_TYPES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a word",
    tuple: "a list, e.g. [a,b],",
    typing.Literal: "auto",
}
"""What a message calls the types of values."""

SOME_OF_THEIR_TYPE = {
    "protocol": tuple(protocol.value for protocol in PROTOCOLS),
}
"""The words of keys that accept some of their type's only."""


@cache
def type_of(key: str) -> Any:
    """Return the type of a dotted key of `Settings`; None for an unknown key."""
    needed: Any = Settings
    for part in key.split("."):
        if typing.get_origin(needed) is dict:
            needed = typing.get_args(needed)[1]
        elif is_group(needed):
            needed = typing.get_type_hints(needed).get(part)
        else:
            return None
    return needed


def is_group(needed: Any) -> bool:
    """Return whether a type is that of a group, with keys below it."""
    return isinstance(needed, type) and issubclass(needed, msgspec.Struct)


def holds_any_key(key: str) -> bool:
    """Whether any name may stand below a key, as below cluster.sbatch."""
    return typing.get_origin(type_of(key)) is dict


def leaf_of(key: str) -> str:
    """Return the last part of a dotted key."""
    return key.rpartition(".")[2]


def members_of(needed: Any) -> tuple[Any, ...]:
    """Return the types that a key accepts, apart from null."""
    is_union = typing.get_origin(needed) in (types.UnionType, typing.Union)
    members = typing.get_args(needed) if is_union else (needed,)
    return tuple(member for member in members if member is not type(None))


def words_of_type(key: str) -> list[str]:
    """Return the words that the type of a key lists; none where it is a number or any word."""
    if key in SOME_OF_THEIR_TYPE:
        return [*SOME_OF_THEIR_TYPE[key]]
    members = members_of(type_of(key))
    enums = (
        kind for kind in members if isinstance(kind, type) and issubclass(kind, StrEnum)
    )
    words = [choice.value for kind in enums for choice in kind]
    if words and bool in members:
        words += ["true", "false"]
    return words


def type_words(key: str) -> str:
    """Return what a key needs, in words.

    >>> type_words("gpus"), type_words("largest_batch")
    ('a whole number', 'a whole number or auto')
    """
    kinds = [typing.get_origin(kind) or kind for kind in members_of(type_of(key))]
    return " or ".join(
        NAMES_OF_TYPES.get(kind, "a group of keys and values") for kind in kinds
    )
