"""User code by reference, `pkg.mod:name`: imported, and called with the arguments it accepts."""

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from hpml_jobs.errors import HpmlError


def load(setting: str, reference: str) -> Callable[..., Any]:
    """Import the function `pkg.mod:name`.

    Raises:
        HpmlError: it cannot be imported; the message names `setting` (e.g. workload.model).
    """
    module_name, _, name = reference.partition(":")
    try:
        module = import_module(module_name)
    except SystemExit as error:
        raise HpmlError(
            f"{setting}={reference}: {module_name} called sys.exit when imported: remove the call"
        ) from error
    except Exception as error:  # a user's module may raise anything on import
        raise HpmlError(
            f"{setting}={reference}: cannot import {module_name}: {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise HpmlError(f"{setting}={reference}: {module_name} has no function {name!r}")
    return function  # type: ignore[no-any-return]  # callable() is all that can be checked


def call(function: Callable[..., Any], *arguments: Any, **optional: Any) -> Any:
    """Call with `arguments`, and with those of `optional` that the function has a parameter for.

    Raises:
        HpmlError: the function called sys.exit.
    """
    parameters = inspect.signature(function).parameters.values()
    accepts_any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    positional = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    filled = positional[: len(arguments)]
    names = {parameter.name for parameter in parameters}
    accepted = {
        name: value
        for name, value in optional.items()
        if name not in filled and (accepts_any_name or name in names)
    }
    try:
        return function(*arguments, **accepted)
    except SystemExit as error:
        name = f"{function.__module__}:{getattr(function, '__qualname__', function)}"
        raise HpmlError(f"your function {name} called sys.exit: remove the call") from error
