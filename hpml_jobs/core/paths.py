"""Paths that come with the program or that a user typed, and the user's login name."""

import os
import pwd
from pathlib import Path

from hpml_jobs.core.errors import UsageError

OWN_CODE = Path(__file__).parents[1]
"""The folder of this package."""


def conf_folder() -> Path:
    """Return conf/: beside the package in a checkout, inside it in a wheel."""
    package = OWN_CODE.resolve()
    inside = package / "conf"  # a wheel
    return inside if inside.is_dir() else package.parent / "conf"


def expanded(text: str | Path) -> str:
    """Return a user's path with $VARIABLES expanded; UsageError where one is not set."""
    path = os.path.expandvars(text)
    if path.startswith("$"):
        raise UsageError(f"{path}: the variable is not set; write the whole path")
    return path


def resolve_path(text: str | Path) -> Path:
    """Return a user's path as an absolute one, with $VARIABLES and ~ expanded.

    >>> os.environ["SCRATCH"] = "/scratch/me"
    >>> str(resolve_path("$SCRATCH/data/../runs"))
    '/scratch/me/runs'
    """
    path = Path(expanded(text))
    try:
        return path.expanduser().resolve()
    except RuntimeError as fault:
        raise UsageError(
            f"{path}: there is no such home folder; write the whole path"
        ) from fault


def typed_path(path: Path) -> Path:
    """Return a typed path with ~ expanded and without `..`, which a missing folder has not."""
    return Path(os.path.normpath(path.expanduser()))


def user_folder() -> Path:
    """Return the folder of the user's defaults, below $XDG_CONFIG_HOME or ~/.config.

    A user without a home folder has no such files: nothing can be read or written there.
    """
    try:
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    except RuntimeError:
        folder = Path(os.devnull)
    return folder / "hpml_jobs"


def login_name() -> str:
    """Return the user's login name; empty where the system has none for this user id."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER", "")
