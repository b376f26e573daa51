"""The command line's `key=value` words, parsed: which key is asked for, with which values."""

from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType, ValueType
from hydra.errors import HydraException

from hpml_jobs.errors import UsageError
from hpml_jobs.plan.settings import typed_value


class Words(NamedTuple):
    """The command line, parsed: key -> the values asked for (one, or several where it sweeps)."""

    values: dict[str, list[Any]]
    passed_on: list[str]  # +key=value and ~key go to Hydra as they are


def parse(words: list[str], *, multirun: bool) -> Words:
    """Parse a command line with Hydra's own parser.

    Raises:
        UsageError: a word that cannot be read, a sweep without `multirun`, a key given twice.
    """
    values: dict[str, list[Any]] = {}
    passed_on: list[str] = []
    for word in words:
        override = _parse_word(word)
        key = override.key_or_group
        if not key:
            raise UsageError(f"{word!r} cannot be read; expected key=value")
        if key.startswith("hydra") or override.package:
            raise UsageError(
                f"{word}: jobs are sent by hpml_jobs, not by a launcher of Hydra; leave it out"
            )
        if override.type is not OverrideType.CHANGE:
            passed_on.append(word)
            continue
        if key in values:
            raise UsageError(f"{key} is given twice")
        values[key] = _values(override, multirun=multirun)
    return Words(values, passed_on)


def _parse_word(word: str) -> Override:
    try:
        return OverridesParser.create().parse_override(word)
    except HydraException as fault:
        hint = "" if "=" in word else "; expected key=value, or a command (hpml-jobs --help)"
        raise UsageError(f"{word!r} cannot be read{hint}") from fault


def _values(override: Override, *, multirun: bool) -> list[Any]:
    key = override.key_or_group
    if not override.is_sweep_override():
        text = (override.input_line or "").partition("=")[2].strip()
        return [typed_value(key, override.value(), text)]
    if override.value_type is ValueType.GLOB_CHOICE_SWEEP or not override.is_discrete_sweep():
        raise UsageError(f"{override.input_line}: name the values, e.g. {key}=1,2,4")
    if not multirun:
        raise UsageError(f"{override.input_line} asks for several cells: add -m")
    # sweep_string_iterator is for Hydra's own multirun; here the values keep their types
    return [typed_value(key, value) for value in override.sweep_iterator()]
