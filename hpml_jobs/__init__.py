"""Data-parallel scaling studies of PyTorch training on SLURM clusters.

The Python API is of extras (`core.features`): `import hpml_jobs` loads nothing else.
"""

from typing import Any

__version__ = "0.9.0"


def __getattr__(name: str) -> Any:
    """Import a name of the API when it is first used."""
    from hpml_jobs.core.features import api, load  # noqa: PLC0415

    if name == "__all__":
        return ["__version__", *api()]
    if name not in api():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(api()[name])


def __dir__() -> list[str]:
    from hpml_jobs.core.features import api  # noqa: PLC0415

    return [*globals(), *api()]
