"""Hydra overrides of the command line (`key=value`), parsed: the values of each key."""

import itertools
import re
from contextlib import suppress
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType, ValueType
from hydra.errors import HydraException

from hpml_jobs.errors import UsageError
from hpml_jobs.plan.config_folders import GROUPS
from hpml_jobs.plan.key_types import checked_value, holds_any_key, type_of

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
    for text, following in itertools.pairwise([*overrides, ""]):
        override = _parse(text, following)
        key = override.key_or_group
        if not key:
            raise UsageError(f"cannot read {text!r}; expected key=value")
        if key.startswith("hydra") or override.package:
            raise UsageError(
                f"{text}: hpml_jobs submits the jobs itself, without a Hydra launcher; leave it out"
            )
        if override.is_delete() and key in GROUPS:
            raise UsageError(f"{text}: a study needs one; name it, {key}=NAME")
        if override.type is not OverrideType.CHANGE and not _adds_to_free_keys(override):
            raw.append(text)
            continue
        if key in values:
            raise UsageError(f"{key} is given twice")
        values[key] = _values(override, multirun=multirun)
    return Overrides(values, raw)


def _adds_to_free_keys(override: Override) -> bool:
    """Return whether it is `+key=value` below a key that holds any, as `+workload.args.width=8`."""
    parent = override.key_or_group.rpartition(".")[0]
    return override.type is OverrideType.ADD and holds_any_key(parent)


def _parse(text: str, following: str) -> Override:
    """Parse one word; `following` is the next one, for a value that a blank cut in two."""
    parse = OverridesParser.create().parse_override
    try:
        return parse(text)
    except HydraException as error:
        key, mark, value = text.partition("=")
        if mark and _WORD.fullmatch(value):
            with suppress(HydraException):
                return parse(f"{key}='{value}'")
        raise UsageError(f"cannot read {text!r}{_remedy(text, following)}") from error


_WORD = re.compile(r"[^\s,'\"\\\[\](){}]+")
"""A value that can stand in quotes as it is: ~ and accents need them in Hydra's grammar."""


def _remedy(text: str, following: str) -> str:
    key, _, value = text.partition("=")
    if value.endswith(",") and following and "=" not in following:
        return f": a blank follows the comma; write {text}{following} as one word"
    if key != key.strip() or value != value.strip():
        return f": write {key.strip()}={value.strip()}, without blanks around ="
    named, mark, rest = text.partition(":")
    if mark and type_of(named) is not None:
        return f"; write {named}={rest}"
    if type_of(text) is not None:
        is_value = following and "=" not in following
        return f"; write {text}={following if is_value else 'VALUE'}"
    return "" if "=" in text else "; expected key=value, or a command (hpml-jobs --help)"


def _values(override: Override, *, multirun: bool) -> list[Any]:
    key = override.key_or_group
    text = (override.input_line or "").partition("=")[2].strip()
    if not override.is_sweep_override():
        return [checked_value(key, override.value(), text)]
    if override.value_type is ValueType.GLOB_CHOICE_SWEEP or not override.is_discrete_sweep():
        raise UsageError(f"{override.input_line}: list the values, e.g. {key}=1,2,4")
    if not multirun:
        raise UsageError(f"{override.input_line} is a sweep: add -m")
    # sweep_string_iterator is for Hydra's own multirun; here the values keep their types
    values = list(itertools.islice(override.sweep_iterator(), MOST_VALUES + 1))
    if len(values) > MOST_VALUES:
        raise UsageError(f"{override.input_line} has more than {MOST_VALUES:,} values: give fewer")
    texts: list[str | None] = list(text.split(","))
    if override.value_type is not ValueType.SIMPLE_CHOICE_SWEEP or len(texts) != len(values):
        texts = [None] * len(values)  # range(1,4), or commas inside the values
    pairs = zip(values, texts, strict=True)
    return [checked_value(key, value, None if t is None else t.strip()) for value, t in pairs]
