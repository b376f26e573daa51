"""User code by reference, `pkg.mod:name`: imported, and called with the arguments it accepts."""

import inspect
from collections.abc import Callable, Container, Mapping
from importlib import import_module
from typing import Any

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.source_files import (
    imported_code,
    refuse_changed,
    versions_of,
    without_files,
)
from hpml_jobs.core.workload import RESERVED_ARGS, SourceFile, Workload, refuse_file


def load(setting: str, reference: str) -> Callable[..., Any]:
    """Import the function `pkg.mod:name`.

    Raises:
        HpmlError: it cannot be imported; the message names `setting` (e.g. workload.model).
    """
    module_name, _, name = reference.partition(":")
    refuse_file(setting, reference)
    try:
        module = import_module(module_name)
    except (
        Exception,
        SystemExit,
    ) as error:  # a user's module may raise anything on import
        raise HpmlError(
            f"{setting}={reference}: cannot import {module_name}: {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise HpmlError(
            f"{setting}={reference}: {module_name} has no function {name!r}"
        )
    return function  # type: ignore[no-any-return]  # callable() is all that can be checked


def check_imports(
    workload: Workload, before: Container[str]
) -> tuple[tuple[SourceFile, ...], dict[str, str]]:
    """Return the user's files imported since `before` that the cell does not name, and packages.

    Raises:
        HpmlError: a file that the cell names was imported with another text.
    """
    if not workload.own_code:
        return (), {}
    code = imported_code(before)
    unnamed = without_files(code.files, workload.sources)
    imported = {file.name for file in workload.imported}
    refuse_changed(sorted({file.name for file in unnamed} & imported))
    references = {
        reference.partition(".")[0].partition(":")[0] for reference in workload.own_code
    }
    return unnamed, versions_of(code.packages | references)


def call(function: Callable[..., Any], *arguments: Any, **optional: Any) -> Any:
    """Call with `arguments`, and with those of `optional` that the function has a parameter for."""
    return function(*arguments, **accepted(function, len(arguments), optional))


def accepted(
    function: Callable[..., Any], positional: int, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values that the function takes by name, after its first `positional` ones.

    >>> accepted(lambda model, lr, width=8: ..., 1, {"model": 0, "lr": 0.1, "depth": 2})
    {'lr': 0.1}
    """
    names = _named(function, positional)
    taken = {*inspect.signature(function).parameters} - {*names}  # filled by position
    if _takes_any_name(function):
        return {name: value for name, value in values.items() if name not in taken}
    return {name: value for name, value in values.items() if name in names}


def check_args(workload: Workload) -> None:
    """Refuse `workload.args` that none of the user's functions takes.

    Raises:
        HpmlError: with the parameters that there are.
    """
    names: set[str] = set()
    for key, positional in POSITIONAL.items():
        reference = getattr(workload, key)
        if reference is not None and ":" in reference:
            function = load(f"workload.{key}", reference)
            if _takes_any_name(function):
                return
            names |= {*_named(function, positional)}
    unknown = [name for name in workload.args if name not in names]
    if unknown:
        takes = sorted(names - {*RESERVED_ARGS, *workload.sizes})
        raise HpmlError(
            f"workload.args.{unknown[0]}: none of your functions takes {unknown[0]}; they take "
            f"{', '.join(takes) or 'no args'}"
        )


POSITIONAL = {"model": 0, "data": 1, "loss": 2, "optimizer": 1, "schedule": 0}
"""The user's functions by key, with the number of arguments that they get by position."""


def _named(
    function: Callable[..., Any], positional: int
) -> dict[str, inspect.Parameter]:
    """Return the parameters that take a value by name, after those that are filled by position."""
    parameters = list(inspect.signature(function).parameters.values())
    by_position = [
        parameter
        for parameter in parameters
        if parameter.kind
        in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    filled = {parameter.name for parameter in by_position[:positional]}
    return {
        parameter.name: parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and parameter.name not in filled
    }


def _takes_any_name(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
