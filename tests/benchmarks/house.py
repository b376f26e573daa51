"""The size and the density of the code, its budget, and its circles of imports.

    python -m tests.benchmarks.house             # one line; fails on circles, sizes above limits
    python -m tests.benchmarks.house --lower     # lower the budget of folders that are smaller now

Tokens are those of `tokenize` without comments, line ends, indentation and docstrings; a string
that is a statement is a docstring, and an f-string is one token, as in Python 3.11. Code lines are
the lines that tokens are on. A function's lines begin with its `def`, and its branches are 1 and
one for each if, loop, comprehension, conditional expression, except, case, `and` and `or`. Imports
are all that a module has, in functions and for type checkers too: `from package import name` needs
the package itself, also if the name is a module.
"""

import argparse
import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = "hpml_jobs"
BUDGET = ROOT / "tests" / "data" / "budget.txt"
DENSEST = 16.75
"""Tokens per line that no function may have."""

MOST_TOKENS_A_LINE = 8.0
MOST_BRANCHES = 3.525
"""Of the mean function: it only goes down."""

MOST_LINES = 500
"""Of a file."""

MOST_ENTRIES = 14
"""Folders and modules at the root of the package, beside __init__ and __main__."""

FEWEST_LINES = 5
"""Shorter functions are not judged by their density."""

_NO_TOKENS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_F_STRING_BEGINS = getattr(tokenize, "FSTRING_START", None)  # from Python 3.12 on
_F_STRING_ENDS = getattr(tokenize, "FSTRING_END", None)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.comprehension,
    ast.ExceptHandler,
    ast.match_case,
    ast.BoolOp,
)


class Function(NamedTuple):
    """A function or method; `name` is without its module, so that it stays when it is moved."""

    module: str
    name: str
    lines: int
    branches: int
    tokens: int
    code_lines: int

    @property
    def density(self) -> float:
        """Tokens per code line."""
        return self.tokens / self.code_lines


class Module:
    """A file of Python, parsed."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.tree = ast.parse(text)

    @cached_property
    def lines(self) -> int:
        """Lines, empty ones too."""
        return self.text.count("\n")

    @cached_property
    def tokens(self) -> Counter[int]:
        """The number of tokens by the line on which they begin; lines they end on have 0."""
        counted = Counter[int]()
        depth = 0
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            is_in_f_string = depth > 0
            depth += token.type == _F_STRING_BEGINS
            depth -= token.type == _F_STRING_ENDS
            if token.type in _NO_TOKENS or token.start in self._docstrings:
                continue
            counted[token.start[0]] += not is_in_f_string
            for line in range(token.start[0] + 1, token.end[0] + 1):
                counted[line] += 0
        return counted

    @cached_property
    def _docstrings(self) -> set[tuple[int, int]]:
        return {
            (node.lineno, node.col_offset)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        }

    @cached_property
    def comments(self) -> int:
        """Comments, noqa and others included."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return sum(token.type == tokenize.COMMENT for token in tokens)

    @cached_property
    def functions(self) -> list[Function]:
        """All functions, those inside others too."""
        return list(self._functions_in(self.tree, ""))

    def _functions_in(self, node: ast.AST, prefix: str) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            inside = prefix
            if isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
                inside = f"{prefix}{child.name}."
            if isinstance(child, _FUNCTIONS):
                yield self._measured(child, prefix + child.name)
            yield from self._functions_in(child, inside)

    def _measured(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, name: str
    ) -> Function:
        end = node.end_lineno or node.lineno
        own = [
            self.tokens[line]
            for line in range(node.lineno, end + 1)
            if line in self.tokens
        ]
        branches = sum(isinstance(part, _BRANCHES) for part in ast.walk(node))
        return Function(
            self.name, name, end - node.lineno + 1, 1 + branches, sum(own), len(own)
        )

    @cached_property
    def imported(self) -> set[str]:
        """The names of modules that this one imports anywhere, and of their parts."""
        names = set[str]()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names |= {
                    node.module,
                    *(f"{node.module}.{alias.name}" for alias in node.names),
                }
        return names


def read(folder: Path) -> dict[str, Module]:
    """Return the modules of a package by name; a package is named as its folder."""
    modules = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        modules[name] = Module(name, path.read_text())
    return modules


def circles(modules: Mapping[str, Module]) -> list[list[str]]:
    """Return the groups of modules each of which imports all others, if only through them."""
    reached: dict[str, set[str]] = {}
    for start in modules:
        seen = set[str]()
        waiting = [start]
        while waiting:
            name = waiting.pop()
            imported = (modules[name].imported & modules.keys()) - {name}
            waiting += imported - seen
            seen |= imported
        reached[start] = seen
    groups = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in modules
        if name in reached[name]
    }
    return sorted(map(list, groups))


def by_density(modules: Iterable[Module]) -> list[Function]:
    """Return the functions with tokens on enough lines, the densest first."""
    functions = [function for module in modules for function in module.functions]
    judged = [function for function in functions if function.code_lines >= FEWEST_LINES]
    return sorted(judged, key=lambda function: (-function.density, function.name))


class Budget(NamedTuple):
    """The most tokens that each folder of the package may have: it only goes down."""

    tokens: Mapping[str, int]

    @classmethod
    def read(cls, path: Path = BUDGET) -> "Budget":
        """Read the file: a folder and its tokens a line."""
        rows = (line.split() for line in path.read_text().splitlines())
        return cls({folder: int(tokens) for folder, tokens in rows})

    def faults(self, tokens: Mapping[str, int]) -> list[str]:
        """Return a line about each folder that has more tokens than it may."""
        return [
            f"{folder} has {count:,} tokens, and {self.tokens.get(folder, 0):,} in {BUDGET.name}: "
            "take as many out of it"
            for folder, count in tokens.items()
            if count > self.tokens.get(folder, 0)
        ]

    def lowered(self, tokens: Mapping[str, int]) -> "Budget":
        """Return the budget of the folders that are there, each with at most what it has."""
        return Budget(
            {
                folder: min(budget, tokens[folder])
                for folder, budget in self.tokens.items()
                if folder in tokens
            }
        )

    def write(self, path: Path = BUDGET) -> None:
        """Write the file."""
        rows = (f"{folder} {tokens}\n" for folder, tokens in self.tokens.items())
        path.write_text("".join(rows))


def tokens_of_folders(modules: Mapping[str, Module]) -> Counter[str]:
    """Return the tokens of each folder of the package."""
    tokens = Counter[str]()
    for name, module in modules.items():
        tokens[folder_of(name)] += module.tokens.total()
    return tokens


def check(modules: Mapping[str, Module]) -> str:
    """Return a line of measures.

    Raises:
        SystemExit: there is a circle of imports, a long file, a dense function, a folder above its
            budget, or the whole package is too dense, or has too many branches or entries.
    """
    functions = [
        function for module in modules.values() for function in module.functions
    ]
    branches = mean(function.branches for function in functions)
    tokens = tokens_of_folders(modules)
    code_lines = sum(len(module.tokens) for module in modules.values())
    density = tokens.total() / (code_lines or 1)
    faults = [f"circle of imports: {' <-> '.join(names)}" for names in circles(modules)]
    faults += [
        f"{name} has {module.lines} lines (limit {MOST_LINES}): split it"
        for name, module in modules.items()
        if module.lines > MOST_LINES
    ]
    faults += [
        f"{function.module}: {function.name} has {function.density:.2f} tokens per line (limit "
        f"{DENSEST}): write one decision per line"
        for function in by_density(modules.values())
        if function.density >= DENSEST
    ]
    faults += Budget.read().faults(tokens)
    entries = tokens.keys() - {PACKAGE, "__main__"}
    if len(entries) > MOST_ENTRIES:
        faults.append(f"{len(entries)} entries in {PACKAGE}/ (limit {MOST_ENTRIES})")
    if density > MOST_TOKENS_A_LINE:
        faults.append(f"{density:.2f} tokens per line (limit {MOST_TOKENS_A_LINE})")
    if branches > MOST_BRANCHES:
        faults.append(f"{branches:.2f} branches per function (limit {MOST_BRANCHES})")
    if faults:
        raise SystemExit("\n".join(faults))
    return (
        f"{tokens.total():,} tokens, {density:.2f} per line, {branches:.2f} branches per "
        "function, no circle of imports"
    )


def folder_of(name: str) -> str:
    """Return the folder below the package of a module."""
    _, *parts = name.split(".")
    return parts[0] if parts else PACKAGE


def main() -> None:
    """Check the package, or lower its budget."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--lower", action="store_true", help="lower budgets to what folders have"
    )
    options = parser.parse_args()
    modules = read(ROOT / PACKAGE)
    if options.lower:
        Budget.read().lowered(tokens_of_folders(modules)).write()
    else:
        print(check(modules))


if __name__ == "__main__":
    main()
