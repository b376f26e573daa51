"""Python's start in a script that is measured: wait for torch's import, then watch it.

This folder is first on PYTHONPATH. Nothing but the standard library is imported before torch is.
"""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  (pathlib is slow)


class _TorchFinder:
    """Finds torch as without it, and has it watched as soon as it is imported."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return torch's own spec; what loads by it calls `_watch` at its end."""
        if name != "torch":
            return None
        place = sys.meta_path.index(_TorchFinder)
        sys.meta_path.remove(_TorchFinder)  # another finder may ask all finders too
        try:
            specs = (finder.find_spec(name, path, target) for finder in [*sys.meta_path])
            spec = next(filter(None, specs), None)
        finally:
            sys.meta_path.insert(place, _TorchFinder)
        if spec is None or spec.loader is None:
            return spec
        loader, load = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.__dict__["exec_module"]
            sys.meta_path.remove(_TorchFinder)
            load(module)
            _watch()

        loader.__dict__["exec_module"] = exec_module
        return spec


def _watch() -> None:
    """Watch torch; a fault is for the report of the cell, never for the script."""
    try:
        if find_spec("hpml_jobs") is None:  # a checkout: behind all that the script may import
            sys.path.append(os.path.abspath(os.path.join(HERE, *[os.pardir] * 4)))  # noqa: PTH100, PTH118
        missing = [name for name in ("msgspec", "numpy") if find_spec(name) is None]
        if missing:
            raise ImportError(f"no {missing[0]} there; install hpml-jobs[worker] for it")
        from hpml_jobs.worker.observer.watch import install  # noqa: PLC0415

        install()
    except Exception as fault:
        path = os.path.join(os.environ["HPML_JOBS_OBSERVE"], "observed")  # noqa: PTH118
        os.makedirs(path, exist_ok=True)  # noqa: PTH103
        with open(f"{path}/fault-{os.getpid()}.txt", "w") as file:  # noqa: PTH123
            file.write(f"{sys.executable} cannot measure a script: {fault}")


def _run_next() -> None:
    """Run the sitecustomize that this one comes before, and be it for `sys.modules`."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]  # noqa: PTH100
if os.environ.get("HPML_JOBS_OBSERVE"):
    if "torch" in sys.modules:
        _watch()
    else:
        sys.meta_path.insert(0, _TorchFinder)
_run_next()
