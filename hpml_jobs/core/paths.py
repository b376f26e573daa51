"""Paths that come with the program or that a user typed, and the user's login name."""

import os
import pwd
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


def login_name() -> str:
    """Return the user's login name; empty where the system has none for this user id."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER", "")
