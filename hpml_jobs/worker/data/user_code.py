"""The user's own code: `pkg.mod:name`, found from the folder where the command was typed."""

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from hpml_jobs.errors import HpmlError


def load(setting: str, reference: str) -> Callable[..., Any]:
    """What `pkg.mod:name` names; `setting` (e.g. workload.model) is named in an error."""
    module_name, _, name = reference.partition(":")
    try:
        module = import_module(module_name)
    except Exception as fault:  # the user's module may fail in any way while it is imported
        raise HpmlError(
            f"{setting}={reference}: cannot import {module_name}: {type(fault).__name__}: {fault}"
        ) from fault
    found = getattr(module, name, None)
    if not callable(found):
        raise HpmlError(f"{setting}={reference}: {module_name} has no function {name!r}")
    return found  # type: ignore[no-any-return]  # callable() says all there is to know


def call(function: Callable[..., Any], *arguments: Any, **offers: Any) -> Any:
    """Call with `arguments`, and with those of `offers` that the function has a parameter for."""
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    positional = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    taken = positional[: len(arguments)]
    names = {parameter.name for parameter in parameters}
    wanted = {
        name: value
        for name, value in offers.items()
        if name not in taken and (takes_all or name in names)
    }
    return function(*arguments, **wanted)
