"""Defaults from files: of the site for all users, and of the user, which go over them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import expanded, user_folder
from hpml_jobs.study.selection import OUTPUTS

SITE_VARIABLE = "HPML_JOBS_SITE_CONFIG"
"""The variable that names another file of the site."""

SITE_FILE = Path("/etc/hpml_jobs/config.yaml")
"""The site's defaults."""


class FileDefault(NamedTuple):
    """A default and the file that has it; `of_cluster`: it is below `clusters.NAME`."""

    value: Any
    file: Path
    of_cluster: bool


def user_config_file() -> Path:
    """Return the path of the user's defaults."""
    return user_folder() / "config.yaml"


def site_config_file() -> Path:
    """Return the path of the site's defaults.

    Raises:
        UsageError: the variable names a file that does not exist.
    """
    named = os.environ.get(SITE_VARIABLE)
    if not named:
        return SITE_FILE
    if not Path(named).exists():
        raise UsageError(f"{SITE_VARIABLE}={named}: there is no such file")
    return Path(named)


def named_clusters() -> Iterator[tuple[Path, str]]:
    """Yield each cluster that a file has defaults for, after the file."""
    for file in _files():
        clusters = _load(file).get("clusters") or {}
        if isinstance(clusters, dict):
            for name in clusters:
                yield file, str(name)


def file_defaults(cluster: str | None) -> dict[str, FileDefault]:
    """Return the defaults by dotted key; those under `clusters.NAME` for that cluster only.

    Without a cluster: the other keys alone (among them `cluster`, the default choice).
    """
    defaults: dict[str, FileDefault] = {}
    for file in _files():
        loaded = _load(file)
        clusters = loaded.pop("clusters", None) or {}
        is_mapping = isinstance(clusters, dict)
        of_cluster = (clusters.get(cluster) or {}) if is_mapping else clusters
        if not isinstance(of_cluster, dict):
            raise UsageError(
                f"{file}: clusters: must hold NAME: with keys and values below it"
            )
        for key, value in _flat(loaded).items():
            defaults[key] = FileDefault(value, file, of_cluster=False)
        for key, value in _flat({"cluster": of_cluster}).items():
            defaults[key] = FileDefault(value, file, of_cluster=True)
    return defaults


def _files() -> tuple[Path, Path]:
    """Return the files of defaults; a later one goes over an earlier one."""
    return site_config_file(), user_config_file()


def _load(path: Path) -> dict[Any, Any]:
    """Return a file's content; empty without a file."""
    if not path.exists():
        return {}
    from hpml_jobs.plan.config_folders import read_yaml  # noqa: PLC0415  (most users have no such file)

    loaded = read_yaml(path, resolve=True)
    if not isinstance(loaded, dict):
        raise UsageError(
            f"{path} must hold keys and values, e.g. 'outputs: /scratch/me/studies'"
        )
    return loaded


def _flat(values: dict[Any, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def user_outputs() -> Path:
    """Return the folder that the user's studies are written to."""
    outputs = file_defaults(None).get("outputs")
    return Path(expanded(str(outputs.value if outputs else OUTPUTS)))
