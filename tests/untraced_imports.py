"""A coverage plugin that stops tracing while other packages are imported.

`import torch` takes half as long again under coverage, in every rank of every test. The plugin is
loaded in each measured process (pyproject.toml, [tool.coverage.run]).
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

PACKAGES = {
    "hydra", "matplotlib", "numpy", "omegaconf", "pandas", "rich", "sklearn", "submitit", "torch",
    "torchvision", "typer",
}  # fmt: skip


class _Untraced(MetaPathFinder):
    """Finds modules of PACKAGES and lets them execute without a trace function."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in PACKAGES or sys.gettrace() is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            _pause_tracing(spec.loader)
        return spec


def _pause_tracing(loader: Loader) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        tracer = sys.gettrace()
        sys.settrace(None)
        try:
            execute(module)
        finally:
            sys.settrace(tracer)

    loader.exec_module = exec_module  # type: ignore[method-assign]


def coverage_init(registry: object, options: object) -> None:
    """Install the finder; coverage calls this when it starts in a process."""
    sys.meta_path.insert(0, _Untraced())
