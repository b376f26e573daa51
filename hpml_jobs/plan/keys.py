"""Keys: their types and values, and the overrides of the command line (`key=value`), parsed."""

import itertools
import math
import re
import types
import typing
from collections.abc import Collection, Iterator
from contextlib import suppress
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

import msgspec
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    Override,
    OverrideType,
    QuotedString,
    ValueType,
)
from hydra.errors import HydraException

from hpml_jobs.core.errors import UsageError, example
from hpml_jobs.core.text import alike, did_you_mean, one_of
from hpml_jobs.core.workload import arg_text
from hpml_jobs.plan.removed import refuse_removed
from hpml_jobs.plan.settings import PROTOCOLS, Settings

LARGEST = 2**63 - 1
"""Largest whole number that cell.json and torch's seeds can hold."""

_PLACE = " - at `$"
"""In msgspec's messages, the text before the path of a key."""

_UNKNOWN = re.compile(r"unknown field `([^`]*)`")


NAMES_OF_TYPES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a word",
    tuple: "a list, e.g. [a,b],",
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

    >>> type_words("gpus"), type_words("study")
    ('a whole number', 'a word')
    """
    kinds = [typing.get_origin(kind) or kind for kind in members_of(type_of(key))]
    return " or ".join(
        NAMES_OF_TYPES.get(kind, "a group of keys and values") for kind in kinds
    )


def make_settings(
    values: dict[str, Any], changed: dict[str, Any] | None = None
) -> Settings:
    """Return the settings of a composed configuration; only numbers in `changed` need a check.

    Raises:
        UsageError: a wrong type, choice or number; the message names the key as it is typed.
    """
    for key, number in _numbers(values if changed is None else changed):
        _check_number(key, number, _as_yaml(number))
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        raise UsageError(_refusal(str(error), values)) from error


def _refusal(message: str, values: Any) -> str:
    """Return msgspec's message on some values with the key and the value as they are typed."""
    problem, _, path = message.partition(_PLACE)
    key = path.rstrip("`").lstrip(".").partition("[")[0]
    if unknown := _UNKNOWN.search(problem):
        name = f"{key}.{unknown[1]}".lstrip(".")
        refuse_removed(name)
        return f"unknown key {name}: hpml-jobs help keys lists the keys"
    if type_of(key) is None:  # the configuration as a whole
        where = key or "the configuration"
        return f"{where}: {problem[0].lower()}{problem[1:].replace('`', '')}"
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    _check_inner(key, values)
    return _complaint(key, _as_yaml(values))


def checked_value(key: str, value: Any, text: str | None = None) -> Any:
    """Return a value with the type of its key; `text` is how it was typed.

    A study named 2026_10 is text, although a parser reads a number. The value of an unknown key, or
    one that refers to other keys (`${gpus}`), is returned unchanged.

    Raises:
        UsageError: it is not of the key's type; the message quotes `text`.
    """
    needed = type_of(key)
    if text is None:
        text = _as_yaml(value)
    value = _as_read(key, value)
    if needed is None or is_group(needed) or "${" in text or text == "???":
        return value
    members = members_of(needed)
    if str in members and isinstance(value, int | float) and type(value) not in members:
        return text
    _check_inner(key, value)
    try:
        msgspec.convert(value, needed)
    except msgspec.ValidationError as error:
        raise UsageError(_complaint(key, text)) from error
    for place, number in _numbers({key: value}):
        _check_number(place, number, text)
    return value


def _as_read(key: str, value: Any) -> Any:
    """Return a value of a form that YAML reads as another type: `off`, and `a,b` for a list."""
    if isinstance(value, bool) and "off" in words_of_type(key):
        return "on" if value else "off"
    if isinstance(value, str) and key in _LISTS:
        parts = re.split(r"[\s,]+", value.strip("[] "))
        return [int(part) if part.isdigit() else part for part in parts]
    return value


_LISTS = ("window", "cluster.hosts")
"""The keys of a list that is typed as `a,b`."""


def _check_inner(key: str, value: Any) -> None:
    """Check each value below a key that holds any, so that a message names the wrong one."""
    if holds_any_key(key) and isinstance(value, dict):
        for name, inner in value.items():
            checked_value(f"{key}.{name}", inner)


def did_you_mean_key(key: str, valid: Collection[str]) -> str:
    """Return a hint with the keys that were probably meant; empty without one.

    They are alike in their last part, then as a whole.
    """
    leaf = leaf_of(key)
    leaves = alike(leaf, {*map(leaf_of, valid)})
    ends = sorted(name for name in valid if leaf_of(name) in leaves)
    near = alike(key, ends)
    # cluster.limit is data.limit, but cluster.grene is not rerun
    is_elsewhere = leaf in (key, *leaves)
    return did_you_mean(ends if is_elsewhere and not near else near)


def _complaint(key: str, text: str) -> str:
    """Return what a key needs instead of a wrong value, quoted as it was typed."""
    if words := words_of_type(key):
        return f"{key}={text}: {one_of(text, words)}"
    needed = type_words(key)
    if key == "minutes":
        needed += " of minutes"
    hint = example(key)
    if text.startswith("[") and NAMES_OF_TYPES[tuple] not in needed:
        values = text.strip("[]").replace(" ", "")
        hint = f"; for several cells, sweep it: -m {key}={values}"
    return f"{key}={text}: {needed} is needed{hint}"


def _numbers(value: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield each number of nested values with its dotted key."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _numbers(inner, f"{prefix}{name}.")
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _numbers(inner, prefix)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield prefix.rstrip("."), value


def _check_number(key: str, number: float, text: str) -> None:
    if not math.isfinite(number):
        raise UsageError(f"{key}={text}: must be a finite number")
    if isinstance(number, int) and abs(number) > LARGEST:
        raise UsageError(f"{key}={text}: must be less than 2^63")


def _as_yaml(value: Any) -> str:
    """Return a value as it is written in a config file or on the command line."""
    return "null" if value is None else arg_text(value)


MOST_VALUES = 100_000
"""Values of one key in a sweep: range(1,1000000000) would fill the memory."""


class Overrides(NamedTuple):
    """The parsed command line: the values of each key (several in a sweep).

    `raw` are the overrides that Hydra gets as they were typed: `+key=value` and `~key`.
    """

    values: dict[str, list[Any]]
    raw: list[str]


def parse_overrides(overrides: list[str], *, multirun: bool) -> Overrides:
    """Parse a command line with Hydra's own parser.

    Raises:
        UsageError: an unreadable override, a wrong type, a sweep without `multirun`, or a key
            given twice.
    """
    values: dict[str, list[Any]] = {}
    raw: list[str] = []
    for text in overrides:
        override = _parse(text)
        key = override.key_or_group
        _check_override(text, override)
        if override.type is not OverrideType.CHANGE and not _adds_to_free_keys(
            override
        ):
            raw.append(text)
            continue
        if key in values:
            raise UsageError(f"{key} is given twice")
        values[key] = _values(override, multirun=multirun)
    return Overrides(values, raw)


def _check_override(text: str, override: Override) -> None:
    key = override.key_or_group
    if not key:
        raise UsageError(f"cannot read {text!r}; expected key=value")
    if key.startswith("hydra") or override.package:
        raise UsageError(
            f"{text}: hpml_jobs submits the jobs itself, without a Hydra launcher; leave it out"
        )
    if override.is_delete() and "." not in key:
        raise UsageError(f"{text}: a study needs one; name it, {key}=VALUE")


def _adds_to_free_keys(override: Override) -> bool:
    """Return whether it is `+key=value` below a key that holds any, as `+workload.args.width=8`."""
    parent = override.key_or_group.rpartition(".")[0]
    return override.type is OverrideType.ADD and holds_any_key(parent)


def _parse(text: str) -> Override:
    """Parse one word of the command line."""
    parse = OverridesParser.create().parse_override
    try:
        return parse(text)
    except HydraException as error:
        key, mark, value = text.partition("=")
        if mark and _WORD.fullmatch(value):
            with suppress(HydraException):
                return parse(f"{key}='{value}'")
        raise UsageError(f"cannot read {text!r}{_remedy(text)}") from error


_WORD = re.compile(r"[^\s,'\"\\\[\](){}]+")
"""A value that can stand in quotes as it is: ~ and accents need them in Hydra's grammar."""


def _remedy(text: str) -> str:
    """Return what to write instead of an override that cannot be read."""
    key, _, value = text.partition("=")
    if value.endswith(","):
        return f": no value follows its last comma; write -m {key}=1,2 without blanks"
    if (key.strip(), value.strip()) != (key, value):
        return f": write {key.strip()}={value.strip()}, without blanks around ="
    return "; expected key=value with matching quotes, or a command (hpml-jobs --help)"


def _swept_values(override: Override, *, multirun: bool) -> list[Any]:
    if (
        override.value_type is ValueType.GLOB_CHOICE_SWEEP
        or not override.is_discrete_sweep()
    ):
        raise UsageError(
            f"{override.input_line}: list the values, e.g. {override.key_or_group}=1,2,4"
        )
    if not multirun and type_of(override.key_or_group) is not None:
        raise UsageError(f"{override.input_line} has several values: add -m")
    # sweep_string_iterator is for Hydra's own multirun; here the values keep their types
    iterator = map(_unquoted, override.sweep_iterator())
    values = list(itertools.islice(iterator, MOST_VALUES + 1))
    if len(values) > MOST_VALUES:
        raise UsageError(
            f"{override.input_line} has more than {MOST_VALUES:,} values: give fewer"
        )
    return values


def _unquoted(value: Any) -> Any:
    """Return a value of a sweep as Override.value() would, with the text of what was in quotes."""
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, list):
        return [*map(_unquoted, value)]
    if isinstance(value, dict):
        return {_unquoted(key): _unquoted(inner) for key, inner in value.items()}
    return value


def _values(override: Override, *, multirun: bool) -> list[Any]:
    key = override.key_or_group
    text = (override.input_line or "").partition("=")[2].strip(" '")
    if not override.is_sweep_override():
        return [checked_value(key, override.value(), text)]
    values = _swept_values(override, multirun=multirun)
    texts: list[str | None] = [part.strip() for part in text.split(",")]
    is_list = override.value_type is ValueType.SIMPLE_CHOICE_SWEEP
    if not is_list or len(texts) != len(values):  # range(1,4), or commas inside
        texts = [None] * len(values)
    return [
        checked_value(key, value, part)
        for value, part in zip(values, texts, strict=True)
    ]
