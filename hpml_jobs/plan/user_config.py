"""The user's defaults: ~/.config/hpml_jobs/config.yaml."""

import os
from pathlib import Path
from typing import Any

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import user_folder
from hpml_jobs.study.selection import OUTPUTS


def user_config_file() -> Path:
    """Return the path of the user's defaults."""
    return user_folder("XDG_CONFIG_HOME", "~/.config") / "config.yaml"


def user_clusters() -> list[str]:
    """Return the clusters that the user has defaults for."""
    clusters = _load().get("clusters") or {}
    return [str(name) for name in clusters] if isinstance(clusters, dict) else []


def user_defaults(cluster: str | None) -> dict[str, Any]:
    """Return the user's defaults as dotted keys; those under `clusters.NAME` for that cluster only.

    Without a cluster: the other keys alone (among them `cluster`, the default choice).
    """
    loaded = _load()
    loaded.pop("clusters", None)
    return _flat(loaded) | defaults_of_cluster(cluster)


def defaults_of_cluster(cluster: str | None) -> dict[str, Any]:
    """Return the defaults under `clusters.NAME` of one cluster, as dotted keys."""
    clusters = _load().get("clusters") or {}
    of_cluster = (clusters.get(cluster) or {}) if isinstance(clusters, dict) else clusters
    if not isinstance(of_cluster, dict):
        raise UsageError(
            f"{user_config_file()}: clusters: must hold NAME: with keys and values below it"
        )
    return _flat({"cluster": of_cluster})


def _load() -> dict[Any, Any]:
    """Return the file's content; empty without a file."""
    path = user_config_file()
    if not path.exists():
        return {}
    from hpml_jobs.plan.config_folders import read_yaml  # noqa: PLC0415  (most users have no such file)

    loaded = read_yaml(path, resolve=True)
    if not isinstance(loaded, dict):
        raise UsageError(f"{path} must hold keys and values, e.g. 'outputs: /scratch/me/studies'")
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
    return Path(os.path.expandvars(str(user_defaults(None).get("outputs", OUTPUTS))))
