"""The source files of the user's functions: their modules and the local modules these import.

They are found by parsing, without importing: the login node may have no torch. A module is local
if it is below the working folder or elsewhere on sys.path, but belongs neither to Python nor to an
installed package, by the metadata beside it (`is_installed`). Where the functions can be called,
sys.modules names the modules that parsing does not find: those of folders added to sys.path, of
editable installs, and compiled ones.
"""

import ast
import hashlib
import os
import sys
import sysconfig
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.installed import is_installed, is_of_another_project
from hpml_jobs.core.paths import OWN_CODE
from hpml_jobs.core.text import few
from hpml_jobs.core.workload import SourceFile

_INSTALLED = frozenset(("site-packages", "dist-packages"))
_PACKAGE_FILE = "__init__.py"

MOST_FILES, MOST_BYTES = 1000, 10_000_000
"""Local files that are parsed at most: it takes about 15 s."""


class _Module(NamedTuple):
    """A module's file, the file's name below its import root, and its package."""

    path: Path
    file: str
    package: str


def source_files(
    references: Iterable[str],
    root: Path,
    notify: Callable[[str], None] = lambda _: None,
) -> tuple[SourceFile, ...]:
    """Return the local files of the modules in `pkg.mod:name` references, sorted by name.

    `root` is the folder that is searched first, before sys.path. A module that is not local has no
    file here. `notify` gets a line if there are more than are read.

    Raises:
        HpmlError: a file cannot be read.
    """
    files = sorted(local_texts(references, root, notify).items())
    return tuple(SourceFile(name=name, sha256=digest(text)) for name, text in files)


def local_texts(
    references: Iterable[str],
    root: Path,
    notify: Callable[[str], None] = lambda _: None,
) -> dict[str, bytes]:
    """Return the texts of the local files of modules, and of those that these import, by name.

    Raises:
        HpmlError: a file cannot be read.
    """
    folders = _import_folders(root)
    waiting = [reference.partition(":")[0] for reference in references]
    visited: set[str] = set()
    files: dict[str, bytes] = {}
    size = 0
    while waiting:
        name = waiting.pop()
        if name in visited:
            continue
        visited.add(name)
        for module in _modules_of(name, folders):
            if module.file in files:
                continue
            if len(files) >= MOST_FILES or size >= MOST_BYTES:
                notify(
                    f"only {len(files):,} local files ({size / 1e6:.2g} MB) that are imported are "
                    f"part of the cells, not {module.file} and others: after a change of these, "
                    "use rerun=true; install packages of others with pip"
                )
                return files
            content = files[module.file] = _read(module.path)
            size += len(content)
            waiting += _imports(content, module.package)
    return files


class ImportedCode(NamedTuple):
    """The local files that were imported, sorted, and the packages that they and others import."""

    files: tuple[SourceFile, ...]
    packages: frozenset[str]


def imported_code(before: Container[str], below: Path | None = None) -> ImportedCode:
    """Return the local files of the packages that were imported since `before` (their names).

    A file is named by its place below its import root, or by the way to it from the folder `below`,
    where it can be found again.

    Raises:
        HpmlError: a file cannot be read.
    """
    files: set[SourceFile] = set()
    packages: set[str] = set()
    folders = _import_folders(below or Path.cwd())
    own_folders = (folders[0], Path.cwd())
    for name, module in list(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or "-").resolve()
        # a container may have torch in a folder of its own
        is_new = name.partition(".")[0] not in before
        if not (is_new and path.is_file() and _is_local(path, folders)):
            continue
        content = _read(path)
        parts = name.split(".")
        packages_above = parts if path.name == _PACKAGE_FILE else parts[:-1]
        name_of_file = "/".join([*packages_above, path.name])
        if below:
            name_of_file = os.path.relpath(path, below.resolve())
        files.add(SourceFile(name=name_of_file, sha256=digest(content)))
        if is_of_another_project(path, own_folders):
            continue
        imports = _imports(content, getattr(module, "__package__", "") or "")
        packages |= {imported.partition(".")[0] for imported in imports}
    return ImportedCode(tuple(sorted(files, key=str)), frozenset(packages))


def without_files(
    files: Iterable[SourceFile], other_files: Iterable[SourceFile]
) -> tuple[SourceFile, ...]:
    """Return the files whose text none of the others has."""
    digests = {file.sha256 for file in other_files}
    return tuple(file for file in files if file.sha256 not in digests)


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Return the installed packages that have these names, each with its version; not torch.

    After the version come 7 digits of the hash of its source files as they were installed: the
    version of a package that is developed often stays.
    """
    named = metadata.packages_distributions()
    names = {name for package in packages for name in named.get(package, ())}
    versions = {}
    for name in sorted(names - {"torch", "hpml_jobs", "hpml-jobs"}):
        record = metadata.distribution(name).read_text("RECORD") or ""
        sources = sorted(line for line in record.splitlines() if ".py,sha256=" in line)
        digits = hashlib.sha256("\n".join(sources).encode()).hexdigest()[:7]
        versions[name] = (
            f"{metadata.version(name)} {digits if sources else ''}".rstrip()
        )
    return versions


def named_file(path: Path, root: Path) -> SourceFile:
    """Return a file that is read as it is, by the way to it from the folder `root`.

    Raises:
        HpmlError: it cannot be read.
    """
    way = os.path.relpath(path.resolve(), root.resolve())
    return SourceFile(name=way, sha256=digest(_read(path)))


def changed_files(files: Iterable[SourceFile], root: Path) -> list[str]:
    """Return the names of the files that are missing, or have another text than they had."""
    folders = _import_folders(root)
    changed = []
    for file in files:
        places = (folder / file.name for folder in folders)
        path = next(filter(Path.is_file, places), None)
        if path is None:
            changed.append(f"{file.name} (missing)")
        elif digest(_read(path)) != file.sha256:
            changed.append(file.name)
    return changed


def refuse_changed(names: Iterable[str]) -> None:
    """Refuse to run other code of the user than was submitted.

    Raises:
        HpmlError: there are names of changed files.
    """
    changed = list(names)
    if changed:
        raise HpmlError(
            f"your code changed since submission: {few(changed)}; submit again, or restore "
            "it and use resubmit"
        )


def differing_names(
    files: Iterable[SourceFile], other_files: Iterable[SourceFile]
) -> list[str]:
    """Return the names of the files that are not the same in both, sorted.

    >>> old, new = SourceFile(name="a.py", sha256="1"), SourceFile(name="a.py", sha256="2")
    >>> differing_names([old], [new, SourceFile(name="b.py", sha256="3")])
    ['a.py', 'b.py']
    """
    return sorted({file.name for file in set(files) ^ set(other_files)})


def _import_folders(root: Path) -> list[Path]:
    entries = [root, *map(Path, sys.path)]
    return [
        entry for entry in dict.fromkeys(map(Path.resolve, entries)) if entry.is_dir()
    ]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise HpmlError(f"your code {path} cannot be read: {error.strerror}") from error


def digest(content: bytes) -> str:
    """Return the sha256 of a text; only its line endings are normalized.

    A comment counts as a change: a false change costs a measurement, a missed one gives a wrong
    number, and syntax trees differ between the Pythons of login node and job.
    """
    lines = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return hashlib.sha256(lines).hexdigest()


def _modules_of(name: str, folders: Sequence[Path]) -> Iterator[_Module]:
    """Yield the local packages above a module, and the module, for as long as they exist."""
    parts = name.split(".")
    own_folders = (folders[0], Path.cwd())
    locations = list(folders)
    for number, part in enumerate(parts):
        above = parts[:number]
        path = next(filter(Path.is_file, _candidates(part, locations)), None)
        if path is None:  # a namespace package, or nothing
            locations = [place / part for place in locations if (place / part).is_dir()]
        elif not _is_local(path, folders) or is_of_another_project(path, own_folders):
            return
        elif path.name == _PACKAGE_FILE:
            file = "/".join([*above, part, _PACKAGE_FILE])
            yield _Module(path, file, ".".join([*above, part]))
            locations = [path.parent]
        else:
            yield _Module(path, "/".join([*above, f"{part}.py"]), ".".join(above))
            return
        if not locations:
            return


def _candidates(part: str, locations: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that a module of this name may have, in Python's order."""
    for location in locations:
        yield location / part / _PACKAGE_FILE
        yield location / f"{part}.py"


_library = cache(sysconfig.get_path)  # 0.1 ms a call, of each module


def _is_local(path: Path, folders: Sequence[Path]) -> bool:
    not_local = (
        _library("stdlib"),
        _library("platstdlib"),
        str(OWN_CODE),
    )
    if not _INSTALLED.isdisjoint(path.parts) or is_installed(path, folders):
        return False
    return not any(path.is_relative_to(Path(folder).resolve()) for folder in not_local)


def parsed(content: bytes) -> ast.Module:
    """Return the syntax tree of a source; an empty one if this Python cannot parse it."""
    try:
        return ast.parse(content)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


@lru_cache(MOST_FILES)
def _imports(content: bytes, package: str) -> list[str]:
    """Return the modules that a source may import; names of attributes may be among them.

    >>> _imports(b"import a.b\\nfrom . import c\\nfrom ..d import e", "p.q")
    ['a.b', 'p.q', 'p.q.c', 'p.d', 'p.d.e']
    """
    modules: list[str] = []
    for node in ast.walk(parsed(content)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            names = [f"{base}.{alias.name}".lstrip(".") for alias in node.names]
            modules += filter(None, (base, *names))
    return modules


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """Return the absolute name of the module that a `from` import names."""
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    names = parts[: len(parts) - node.level + 1]
    if node.module:
        names.append(node.module)
    return ".".join(names)
