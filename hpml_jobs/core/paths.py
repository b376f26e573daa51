"""Paths: the configs that come with the program, and paths that a user typed."""

import os
from pathlib import Path


def conf_folder() -> Path:
    """Return conf/: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "conf"  # a wheel
    return inside if inside.is_dir() else package.parent / "conf"


def resolve_path(text: str | Path) -> Path:
    """Return a user's path as an absolute one, with $VARIABLES and ~ expanded.

    >>> os.environ["SCRATCH"] = "/scratch/me"
    >>> str(resolve_path("$SCRATCH/data/../runs"))
    '/scratch/me/runs'
    """
    return Path(os.path.expandvars(text)).expanduser().resolve()
