"""Hydra overrides of the command line (`key=value`), parsed: the values of each key."""

from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType, ValueType
from hydra.errors import HydraException

from hpml_jobs.errors import UsageError
from hpml_jobs.plan.settings import typed_value


class Overrides(NamedTuple):
    """The parsed command line: the values of each key (several in a sweep).

    `raw` are the overrides that Hydra gets as they were typed: `+key=value` and `~key`.
    """

    values: dict[str, list[Any]]
    raw: list[str]


def parse_overrides(overrides: list[str], *, multirun: bool) -> Overrides:
    """Parse a command line with Hydra's own parser.

    Raises:
        UsageError: an unreadable override, a sweep without `multirun`, or a key given twice.
    """
    values: dict[str, list[Any]] = {}
    raw: list[str] = []
    for text in overrides:
        override = _parse(text)
        key = override.key_or_group
        if not key:
            raise UsageError(f"cannot read {text!r}; expected key=value")
        if key.startswith("hydra") or override.package:
            raise UsageError(
                f"{text}: hpml_jobs submits the jobs itself, without a Hydra launcher; leave it out"
            )
        if override.type is not OverrideType.CHANGE:
            raw.append(text)
            continue
        if key in values:
            raise UsageError(f"{key} is given twice")
        values[key] = _values(override, multirun=multirun)
    return Overrides(values, raw)


def _parse(text: str) -> Override:
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        hint = "" if "=" in text else "; expected key=value, or a command (hpml-jobs --help)"
        raise UsageError(f"cannot read {text!r}{hint}") from error


def _values(override: Override, *, multirun: bool) -> list[Any]:
    key = override.key_or_group
    if not override.is_sweep_override():
        text = (override.input_line or "").partition("=")[2].strip()
        return [typed_value(key, override.value(), text)]
    if override.value_type is ValueType.GLOB_CHOICE_SWEEP or not override.is_discrete_sweep():
        raise UsageError(f"{override.input_line}: list the values, e.g. {key}=1,2,4")
    if not multirun:
        raise UsageError(f"{override.input_line} is a sweep: add -m")
    # sweep_string_iterator is for Hydra's own multirun; here the values keep their types
    return [typed_value(key, value) for value in override.sweep_iterator()]
