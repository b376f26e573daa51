"""The user's defaults: ~/.config/hpml_jobs/config.yaml."""

import io
import os
from pathlib import Path
from typing import Any

from hpml_jobs.errors import UsageError
from hpml_jobs.study.reader import read_bytes, reason_of


def user_config_file() -> Path:
    """Return the path of the user's defaults."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "hpml_jobs" / "config.yaml"


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
    try:
        text = read_bytes(path).decode()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as fault:
        raise UsageError(f"{path} cannot be read: {reason_of(fault)}") from fault
    from omegaconf import OmegaConf  # noqa: PLC0415  (most users have no such file)
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415

    try:
        loaded = OmegaConf.to_container(OmegaConf.load(io.StringIO(text)), resolve=True)
    except (OSError, ValueError, RecursionError, OmegaConfBaseException) as error:
        raise UsageError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    except Exception as error:  # PyYAML's errors have no common public parent but YAMLError
        if type(error).__module__.startswith("yaml"):
            mark = getattr(error, "problem_mark", None)
            place = f" line {mark.line + 1}" if mark else ""
            problem = getattr(error, "problem", None) or str(error).splitlines()[0]
            raise UsageError(f"{path}{place} is not YAML: {problem}") from error
        raise
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
    return Path(os.path.expandvars(str(user_defaults(None).get("outputs", "outputs"))))
