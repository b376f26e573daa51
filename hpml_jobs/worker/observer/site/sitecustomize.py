"""Python's start in a script that is measured: wait for torch's import, then watch it.

This folder is first on PYTHONPATH. Nothing but the standard library is imported before torch is.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  (pathlib is slow)
CHECKOUT = os.path.abspath(os.path.join(HERE, *[os.pardir] * 4))  # noqa: PTH100, PTH118

OTHERS = ("hpml_jobs", "msgspec", "numpy")
"""What the observer imports beside torch and Python's own modules."""


class Start:
    """What the observer holds of a process, as it was before the script began.

    `held` are the modules that only the observer has imported. The script finds them as if they
    were not imported yet.
    """

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(folder)  # noqa: PTH100
        self.environment = dict(os.environ)
        self.held: dict[str, ModuleType] = {}
        of_user = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100
        # A folder of the user's may be that of the script, but may have numpy too. A checkout is
        # behind all that is installed.
        self._of_import = {
            "path": [*sorted(path, key=lambda entry: entry in of_user), CHECKOUT],
            "meta_path": [*sys.meta_path],
            "path_hooks": [*sys.path_hooks],
            "path_importer_cache": {},
        }
        self._library = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Let the block import what it would without the script, and leave nothing behind."""
        table, of_import = (
            sys.modules,
            {name: getattr(sys, name) for name in self._of_import},
        )
        vars(sys).update(self._of_import)
        names = {
            name
            for name, module in [*table.items()]
            if self._is_of_script(name, module)
        }
        theirs = {
            n: module for n, module in [*table.items()] if n.partition(".")[0] in names
        }
        for name in theirs:
            del table[name]
        before = {*table}
        table.update(self.held)
        try:
            yield
        finally:
            vars(sys).update(of_import)
            for name in {*table} - before:
                self.held[name] = table.pop(name)
            table.update(theirs)

    def _is_of_script(self, name: str, module: Any) -> bool:
        """Return whether a module of the script has the name of one that the observer imports."""
        if name not in sys.stdlib_module_names and name not in OTHERS:
            return False
        origin = str(getattr(getattr(module, "__spec__", None), "origin", None))
        if name in sys.stdlib_module_names:
            return origin not in ("built-in", "frozen") and not origin.startswith(
                self._library
            )
        spec = PathFinder.find_spec(name)
        return spec is not None and spec.origin != origin

    def note(self, text: str) -> None:
        """Write why this process cannot be measured; the first line is the reason."""
        path = os.path.join(self.folder, "observed")  # noqa: PTH118
        with suppress(OSError):
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
            name = f"{path}/fault-{os.getpid()}.txt"
            with open(name, "w", errors="replace") as file:  # noqa: PTH123
                file.write(text)


class _Held:
    """Loads a module that the observer has imported before."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module."""
        del spec
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing but restore what the import has changed."""
        module.__spec__ = self._spec


class _Finder:
    """Finds what is found without it; torch is watched as soon as it is imported."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._is_waiting = True

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> ModuleSpec | None:
        """Return torch's own spec; what loads by it calls `_watch` at its end."""
        held = self._start.held.get(name)
        if held is None and not (name == "torch" and self._is_waiting):
            return None
        spec = self._spec_of_others(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        if held is not None:
            is_same = held.__spec__ is not None and held.__spec__.origin == spec.origin
            loader: Any = _Held(held)
            return ModuleSpec(name, loader, origin=spec.origin) if is_same else spec
        loader, load = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.__dict__["exec_module"]
            self._is_waiting = False
            load(module)
            _watch(self._start)

        loader.__dict__["exec_module"] = exec_module
        return spec

    def _spec_of_others(self, name: str, path: Any, target: Any) -> ModuleSpec | None:
        """Return what is found without this finder; others may ask all finders, too."""
        finders = sys.meta_path
        sys.meta_path = [finder for finder in finders if finder is not self]
        try:
            specs = (finder.find_spec(name, path, target) for finder in sys.meta_path)
            return next(filter(None, specs), None)
        finally:
            sys.meta_path = finders


def _watch(start: Start) -> None:
    """Watch torch; a fault is for the report of the cell, never for the script."""
    try:
        with start.apart():
            missing = [name for name in ("msgspec", "numpy") if find_spec(name) is None]
            if missing:
                raise ImportError(
                    f"no {missing[0]} there; install hpml-jobs[worker] for it"
                )
            from hpml_jobs.worker.observer.watch import install  # noqa: PLC0415

            install(start)
    except Exception as fault:
        start.note(f"{sys.executable} cannot measure a script: {fault}")


_HELPERS = ("multiprocessing.resource_tracker", "hpml_jobs.job.script")
"""Modules of processes that are none of the script: the latter becomes one."""


def _report_stacks(start: Start) -> None:
    """Let this process write its stacks at a signal, also before it imports torch."""
    if any(helper in word for word in sys.orig_argv for helper in _HELPERS):
        return
    with suppress(Exception), start.apart():
        from hpml_jobs.core.stack_files import begin_script  # noqa: PLC0415

        begin_script(os.path.join(start.folder, "stacks"), start.environment)  # noqa: PTH118


def _run_next() -> None:
    """Run the sitecustomize that this one comes before, and be it for `sys.modules`."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]  # noqa: PTH100
if folder := os.environ.get("HPML_JOBS_OBSERVE"):
    beginning = Start(folder)
    _report_stacks(beginning)
    if "torch" in sys.modules:
        _watch(beginning)
    sys.meta_path.insert(0, _Finder(beginning))
_run_next()
