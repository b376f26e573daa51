"""Data-parallel scaling studies of PyTorch training on SLURM clusters.

`hpml_jobs.open_study()` opens a study for notebooks (docs/share.md).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpml_jobs.cli.notebook import OpenStudy, open_study
    from hpml_jobs.core.errors import HpmlError

__version__ = "0.9.0"

__all__ = ["HpmlError", "OpenStudy", "__version__", "open_study"]


def __getattr__(name: str) -> Any:
    """Import the API when it is first used: `import hpml_jobs` loads nothing else."""
    if name == "HpmlError":
        from hpml_jobs.core.errors import HpmlError  # noqa: PLC0415

        return HpmlError
    if name in __all__:
        from hpml_jobs.cli import notebook  # noqa: PLC0415

        return getattr(notebook, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
