"""Small files and small helpers of the package: their numbers may only fall."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "hpml_jobs"

FILES = sorted(PACKAGE.rglob("*.py"))

SMALL_FILES, SMALL_HELPERS = 3, 5
"""The most that there may be. Lower a number when you have joined a file or inlined a helper."""

LEAST_LINES = 60

ENTRY_POINTS = ("__init__", "__main__", "agent")
"""Modules that Python or a job starts by their name."""


def small_files() -> list[str]:
    """Modules below 60 lines: each is a stop for a reader, and hardly more than its imports."""
    return [
        f"{path.relative_to(PACKAGE)}: {lines} lines"
        for path in FILES
        if path.stem not in ENTRY_POINTS
        and (lines := path.read_text().count("\n")) < LEAST_LINES
    ]


def small_helpers() -> list[str]:
    """Private functions with one use in their module and a body below signature and docstring."""
    return [
        f"{path.relative_to(PACKAGE)}: {function.name}"
        for path in FILES
        for text in [path.read_text()]
        for function in _private_functions(text)
        if len(re.findall(rf"\b{function.name}\b", text)) == 2
        and _body_lines(function) < _head_lines(function)
    ]


def _private_functions(text: str) -> Iterator[ast.FunctionDef]:
    for node in ast.parse(text).body:
        is_plain = isinstance(node, ast.FunctionDef) and not node.decorator_list
        if is_plain and node.name.startswith("_"):
            yield node


def _body(function: ast.FunctionDef) -> list[ast.stmt]:
    has_docstring = ast.get_docstring(function) and len(function.body) > 1
    return function.body[1:] if has_docstring else function.body


def _head_lines(function: ast.FunctionDef) -> int:
    return _body(function)[0].lineno - function.lineno


def _body_lines(function: ast.FunctionDef) -> int:
    return (function.end_lineno or 0) - _body(function)[0].lineno + 1


def test_number_of_small_files_does_not_grow():
    found = small_files()
    assert len(found) <= SMALL_FILES, "\n".join(found)


def test_number_of_small_helpers_does_not_grow():
    found = small_helpers()
    assert len(found) <= SMALL_HELPERS, "\n".join(found)
