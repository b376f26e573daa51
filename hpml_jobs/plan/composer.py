"""Composition of one choice of config groups with Hydra, and the user's defaults on top."""

import difflib
from collections.abc import Iterable
from typing import Any

from hydra import compose
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from hpml_jobs.errors import UsageError
from hpml_jobs.plan.config_folders import GROUPS, ConfigFolders
from hpml_jobs.plan.settings import Settings, make_settings, typed_value
from hpml_jobs.plan.user_config import user_config_file, user_defaults


class Composer:
    """Composes the configuration of one cluster; remembers where each of its keys comes from.

    One compose() takes 0.1 s, so it is called once per choice of groups; the values of a sweep
    are set on its result.
    """

    def __init__(self, configs: ConfigFolders, cluster: str, raw_overrides: list[str]) -> None:
        defaults = user_defaults(cluster)
        self._cluster = cluster
        self._defaults = {key: value for key, value in defaults.items() if key not in GROUPS}
        self._extra = list(raw_overrides)
        if configs.users is not None:
            self._extra.insert(0, f"hydra.searchpath=['file://{configs.users}']")
        self._choices: dict[str, list[str]] = {}  # that were composed, by group
        self._default_origins: dict[str, str] = {}

    @property
    def origins(self) -> dict[str, str]:
        """Return the origin of each of the user's defaults, and of the keys of each group.

        Groups are under `GROUP.`, e.g. conf/recipe/{plain,warmup}.yaml under `recipe.`.
        """
        files = {}
        for group, choices in self._choices.items():
            names = ",".join(choices)
            files[f"{group}."] = f"conf/{group}/{f'{{{names}}}' if ',' in names else names}.yaml"
        return self._default_origins | files

    def compose(self, workload: str, recipe: str) -> DictConfig:
        """Return the configuration of one choice of groups, with the user's defaults.

        Raises:
            UsageError: Hydra refuses it, or a default has an unknown key.
        """
        choices = {"cluster": self._cluster, "workload": workload, "recipe": recipe}
        overrides = [f"{group}={choice}" for group, choice in choices.items()]
        try:
            config = compose("config", overrides=[*overrides, *self._extra])
        except (HydraException, OmegaConfBaseException) as error:
            raise UsageError(f"configuration: {_first_line(error)}") from error
        is_placeholder = workload == "auto"  # composed only to learn the device
        for key, value in self._defaults.items():
            if is_placeholder and key.startswith("workload."):
                continue
            check_keys(config, [key], place=f"{user_config_file()}: ")
            OmegaConf.update(config, key, typed_value(key, value))
            self._default_origins[key] = str(user_config_file())
        if not is_placeholder:
            for group, choice in choices.items():
                composed = self._choices.setdefault(group, [])
                composed += [] if choice in composed else [choice]
        return config


def check_keys(config: DictConfig, keys: Iterable[str], place: str = "") -> None:
    """Refuse keys that a configuration does not have; `place` begins the message."""
    valid = _dotted_keys(OmegaConf.to_container(config, resolve=False))
    for key in keys:
        if key not in valid:
            near = difflib.get_close_matches(key, valid, n=1)
            hint = f"did you mean {near[0]}?" if near else "hpml-jobs --help lists the keys"
            raise UsageError(f"{place}unknown key {key}: {hint}")


def settings_with(config: DictConfig, values: dict[str, Any]) -> Settings:
    """Return the settings of a configuration with some values set, which change it in place.

    Raises:
        UsageError: a value is missing or has the wrong type.
    """
    try:
        for key, value in values.items():
            OmegaConf.update(config, key, value)
        composed = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UsageError(f"configuration: {_first_line(error)}") from error
    return make_settings(dict(composed))  # type: ignore[arg-type]


def _first_line(error: Exception) -> str:
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} has no value; add {error.full_key}=VALUE"
    return str(error).strip().splitlines()[0]


def _dotted_keys(values: Any, prefix: str = "") -> set[str]:
    """Return all dotted keys of nested mappings, inner nodes included."""
    if not isinstance(values, dict):
        return set()
    keys = {f"{prefix}{key}" for key in values}
    return keys.union(*(_dotted_keys(value, f"{prefix}{key}.") for key, value in values.items()))
