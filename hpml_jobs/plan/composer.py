"""Composition of one choice of config groups with Hydra, and the files' defaults on top."""

import functools
import itertools
import operator
import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from hydra import compose
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from hpml_jobs.core.cluster import Cluster, Launcher
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.sbatch import Default, default_variables
from hpml_jobs.core.text import PROGRAM
from hpml_jobs.plan.config_folders import GROUPS, ConfigFolders
from hpml_jobs.plan.keys import (
    checked_value,
    did_you_mean_key,
    holds_any_key,
    make_settings,
    type_of,
)
from hpml_jobs.plan.removed import refuse_removed
from hpml_jobs.plan.settings import Settings
from hpml_jobs.plan.user_config import FileDefault, file_defaults

AUTO = "auto"
"""The choice of a workload that depends on other keys."""


class Composer:
    """Composes the configuration of one cluster; remembers where each of its keys comes from.

    One compose() takes 0.1 s, so it is called once per choice of groups; the values of a sweep
    are set on its result.
    """

    def __init__(
        self, configs: ConfigFolders, cluster: str, raw_overrides: list[str]
    ) -> None:
        defaults = file_defaults(cluster)
        self._cluster = cluster
        self._configs = configs
        self._defaults = {
            key: value for key, value in defaults.items() if key not in GROUPS
        }
        self._extra = list(raw_overrides)
        if configs.users is not None:
            self._extra.insert(0, f"hydra.searchpath=['file://{configs.users}']")
        self._choices: dict[str, list[str]] = {}  # that were composed, by group
        self._default_origins: dict[str, str] = {}
        self._variables: dict[str, Default] = {}

    @property
    def origins(self) -> dict[str, str]:
        """Return the origin of each default of a file, and of the keys of each group.

        Groups are under `GROUP.`, e.g. conf/recipe/{plain,goyal}.yaml under `recipe.`.
        """
        files = {}
        for group, choices in self._choices.items():
            names = ",".join(choices)
            if len(choices) > 1:
                names = f"{{{names}}}"
            files[f"{group}."] = f"conf/{group}/{names}.yaml"
        return self._default_origins | files

    def with_place(self, error: UsageError, given: Container[str]) -> UsageError:
        """Return a refusal with the file or the variable before it that gives the key its default.

        `given` are the keys of the command line and the grid, which go over the defaults.
        """
        key = re.split(r"[=:\s]", str(error), maxsplit=1)[0]
        file = self._default_origins.get(key)
        return error if file is None or key in given else UsageError(f"{file}: {error}")

    def compose(self, workload: str, recipe: str) -> DictConfig:
        """Return the configuration of one choice of groups, with the files' defaults.

        Raises:
            UsageError: Hydra refuses it, or a default has an unknown key.
        """
        choices = {"cluster": self._cluster, "workload": workload, "recipe": recipe}
        config = self._composed(
            [f"{group}={choice}" for group, choice in choices.items()]
        )
        self._set_variables(config)
        is_placeholder = workload == AUTO  # composed only to learn the device
        for key, default in self._defaults.items():
            if not (is_placeholder and key.startswith("workload.")):
                self._set_default(config, key, default)
        self._default_origins |= self._configs.keys_of_own("workload", workload)
        for group, choice in choices.items():
            composed = self._choices.setdefault(group, [])
            if choice not in (AUTO, *composed):  # which becomes another one
                composed.append(choice)
        return config

    def _composed(self, overrides: Sequence[str]) -> DictConfig:
        try:
            config = compose("config", overrides=[*overrides, *self._extra])
        except (HydraException, OmegaConfBaseException) as error:
            raise UsageError(f"configuration: {_first_line(error)}") from error
        return config

    def _set_variables(self, config: DictConfig) -> None:
        """Set what sbatch's variables give, where neither profile nor a file of defaults does."""
        # to_container's type is a union: a mapping becomes a dict
        cluster: dict[str, Any] = OmegaConf.to_container(config.cluster)  # type: ignore[assignment]
        if cluster.get("launcher") == Launcher.LOCAL:
            return
        for key, default in default_variables(os.environ, cluster).items():
            if key not in self._defaults:
                OmegaConf.update(config, key, checked_value(key, default.value))
                self._default_origins[key] = default.variable
                self._variables[key] = default

    def variables_text(self, given: Container[str]) -> str:
        """Return the keys that variables of sbatch give a value, in one line; else nothing.

        `given` are the keys of the command line and the grid, which go over the defaults.
        """
        texts = [
            f"{key}={default.value} ({default.variable})"
            for key, default in self._variables.items()
            if key not in given
        ]
        return f"from your shell: {', '.join(texts)}" if texts else ""

    def _set_default(self, config: DictConfig, key: str, default: FileDefault) -> None:
        """Set a default of a file, where this configuration has its key.

        A profile lacks what its cluster cannot do: an account means nothing to cluster=local.
        """
        file = default.file
        valid = _dotted_keys(OmegaConf.to_container(config, resolve=False))
        is_free = _is_free(config, key)
        if key not in valid and not is_free:
            if type_of(key) is None:
                check_keys(config, [key], place=f"{file}: ")
            if default.of_cluster:
                raise UsageError(
                    f"{file}: clusters.{self._cluster}: cluster={self._cluster} has no key {key}"
                )
            return
        try:
            value = checked_value(key, default.value)
            OmegaConf.update(config, key, value, force_add=is_free)
        except UsageError as error:
            raise UsageError(f"{file}: {error}") from error
        self._default_origins[key] = str(file)


_CLUSTER_KEYS = [f"cluster.{field.name}" for field in msgspec.structs.fields(Cluster)]
"""The keys that some profile of a cluster has."""


def check_keys(config: DictConfig, keys: Iterable[str], place: str = "") -> None:
    """Refuse keys that a configuration does not have; `place` begins the message."""
    valid = _dotted_keys(OmegaConf.to_container(config, resolve=False))
    for key in keys:
        if key not in valid and not _is_free(config, key):
            if key.startswith("cluster.") and type_of(key) is not None:
                raise UsageError(
                    f"{place}this cluster= has no key {key}: choose another cluster="
                )
            refuse_removed(key, place)
            hint = did_you_mean_key(key, [*valid, *GROUPS, *_CLUSTER_KEYS])
            hint = hint or f"; see {PROGRAM} help keys (a script's options: args=)"
            raise UsageError(f"{place}unknown key {key}{hint}")


def _is_free(config: DictConfig, key: str) -> bool:
    """Return whether a key may have any name, as below workload.args and cluster.sbatch."""
    parent = key.rpartition(".")[0]
    return holds_any_key(parent) and OmegaConf.select(config, parent) is not None


def settings_of(
    config: DictConfig, values: Mapping[str, Sequence[Any]]
) -> Iterator[Settings]:
    """Yield the settings of each combination of values, which change the configuration in place.

    Raises:
        UsageError: a value is missing or has the wrong type.
    """
    composed: dict[str, Any] = {}
    is_plain: bool | None = None  # known when the first values are set
    for combination in itertools.product(*values.values()):
        chosen = dict(zip(values, combination, strict=True))
        if is_plain:
            for key, value in chosen.items():
                *parents, name = key.split(".")
                functools.reduce(operator.getitem, parents, composed)[name] = value
            yield make_settings(composed, chosen)
        else:
            composed = _resolved(config, chosen)
            # resolving takes longer than the rest of a plan: once, if no value refers to another
            # one and no mapping is merged
            if is_plain is None:
                texts = str((OmegaConf.to_container(config), values))
                options = itertools.chain(*values.values())
                has_mapping = any(isinstance(option, Mapping) for option in options)
                is_plain = "${" not in texts and "???" not in texts and not has_mapping
            yield make_settings(composed)


def _resolved(config: DictConfig, values: Mapping[str, Any]) -> dict[str, Any]:
    try:
        for key, value in values.items():
            adds = _is_free(config, key) or holds_any_key(key)
            OmegaConf.update(config, key, value, force_add=adds)
        composed = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UsageError(f"configuration: {_first_line(error)}") from error
    return dict(composed)  # type: ignore[arg-type]


def _first_line(error: Exception) -> str:
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} has no value; add {error.full_key}=VALUE"
    line = str(error).strip().partition("\n")[0]
    return line.replace("Could not append to config.", "leave the + out:")


def _dotted_keys(values: Any, prefix: str = "") -> set[str]:
    """Return all dotted keys of nested mappings, inner nodes included."""
    keys = set[str]()
    if isinstance(values, dict):
        for name, value in values.items():
            key = f"{prefix}{name}"
            keys |= {key} | _dotted_keys(value, f"{key}.")
    return keys
