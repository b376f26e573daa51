"""A person's own defaults: ~/.config/hpml_jobs/config.yaml."""

import os
from pathlib import Path
from typing import Any

from hpml_jobs.errors import UsageError


def personal_file() -> Path:
    """Where a person's own defaults are read from."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "hpml_jobs" / "config.yaml"


def personal_clusters() -> list[str]:
    """The clusters that a person has defaults for."""
    clusters = _load().get("clusters") or {}
    return [str(name) for name in clusters] if isinstance(clusters, dict) else []


def personal_defaults(cluster: str | None) -> dict[str, Any]:
    """A person's defaults as dotted keys; those under `clusters.NAME` only for that cluster.

    Without a cluster: the plain keys alone (among them `cluster`, the default choice).
    """
    loaded = _load()
    clusters = loaded.pop("clusters", None) or {}
    mine = (clusters.get(cluster) or {}) if isinstance(clusters, dict) else clusters
    if not isinstance(mine, dict):
        raise UsageError(
            f"{personal_file()}: under clusters: stands NAME: with keys and values below it"
        )
    return _flat(loaded) | _flat({"cluster": mine})


def _load() -> dict[Any, Any]:
    """The file as it is; empty where there is none."""
    path = personal_file()
    if not path.exists():
        return {}
    from omegaconf import OmegaConf  # noqa: PLC0415  (most people have no such file)
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415

    try:
        loaded = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OSError, ValueError, OmegaConfBaseException) as fault:
        raise UsageError(f"{path} cannot be read: {str(fault).splitlines()[0]}") from fault
    except Exception as fault:  # PyYAML's errors have no common public parent but YAMLError
        if type(fault).__module__.startswith("yaml"):
            mark = getattr(fault, "problem_mark", None)
            place = f" line {mark.line + 1}" if mark else ""
            problem = getattr(fault, "problem", None) or str(fault).splitlines()[0]
            raise UsageError(f"{path}{place} is not YAML: {problem}") from fault
        raise
    if not isinstance(loaded, dict):
        raise UsageError(f"{path} must hold keys and values, e.g. 'outputs: /scratch/me/studies'")
    return loaded


def _flat(values: dict[Any, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def personal_outputs() -> Path:
    """The folder that this person's studies are written to."""
    return Path(os.path.expandvars(str(personal_defaults(None).get("outputs", "outputs"))))
