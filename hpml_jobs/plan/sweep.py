"""From the command line's words to one checked `Settings` per combination; Hydra composes."""

import difflib
import itertools
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from hpml_jobs.core.cell import Device
from hpml_jobs.core.cluster import Launcher
from hpml_jobs.core.paths import conf_folder
from hpml_jobs.errors import UsageError
from hpml_jobs.plan import machine
from hpml_jobs.plan.overrides import Words, parse
from hpml_jobs.plan.settings import Settings, settle, typed_value
from hpml_jobs.plan.user_config import personal_clusters, personal_defaults, personal_file

GROUPS = ("cluster", "workload", "recipe", "grid")


class Sweep(NamedTuple):
    """All combinations, what was decided on the way, and where each value came from.

    `detected` is the sentence that says why `cluster=auto` became this profile; empty where the
    profile was named.
    """

    settings: list[Settings]
    said: list[str]
    origins: dict[str, str]
    detected: str = ""


def expand(words: list[str], *, multirun: bool, config_dir: Path | None = None) -> Sweep:
    """Every combination of a command line.

    Raises:
        UsageError: a word that cannot be parsed, a key or choice that does not exist, a wrong type.
    """
    by_grid = any(word.startswith("grid=") for word in words)  # a grid sweeps by itself
    asked = parse(words, multirun=multirun or by_grid)
    folders = [conf_folder()] + ([config_dir.resolve()] if config_dir else [])
    with initialize_config_dir(str(folders[0]), version_base="1.3", job_name="hpml_jobs"):
        return _Composer(asked, folders).sweep()


_ONE_EACH = (
    *("study", "outputs", "cluster", "data.root", "minutes"),
    *("ladder", "pack", "collect_after", "retries", "rerun"),
)


def _one_study(found: list[Settings]) -> None:
    """Refuse a sweep over what a study, or a cell in it, has only one of."""
    for name in _ONE_EACH:
        get = operator.attrgetter(name)
        if any(get(settings) != get(found[0]) for settings in found):
            values = f"{name}=" if name != "cluster" else "cluster.…="
            raise UsageError(f"a study has one {values}: it cannot be swept; send one study each")


class _Composer:
    """One compose() per combination of group choices; values are updated on its result."""

    def __init__(self, asked: Words, folders: list[Path]) -> None:
        self.folders = folders
        self.passed_on = asked.passed_on
        self.groups = {k: v for k, v in asked.values.items() if k in GROUPS}
        self.values = {k: v for k, v in asked.values.items() if k not in GROUPS}
        self.personal: dict[str, Any] = {}
        self.mine: dict[str, list[Any]] = {}  # choices of groups that a grid's blocks go before
        self.said: list[str] = []
        self.detected = ""
        self.origins: dict[str, str] = {}
        self._taken: dict[str, dict[str, None]] = {}  # by group, choices in their order

    def sweep(self) -> Sweep:
        mine = personal_defaults(None)
        for group in GROUPS:
            if group in mine and group not in self.groups:
                self.origins[group] = str(personal_file())
                kept = self.mine if group in ("workload", "recipe") else self.groups
                kept[group] = [mine[group]]
        for name in personal_clusters():
            self._check_choice(f"{personal_file()}: clusters", name, group="cluster")
        cluster = self._cluster()
        self.personal = {k: v for k, v in personal_defaults(cluster).items() if k not in GROUPS}
        self.groups["cluster"] = [cluster]
        found = []
        for block in self._blocks():
            found += list(self._combinations(block))
        if not found:
            raise UsageError("no cell: a range is empty")
        _one_study(found)
        return Sweep(found, self.said, self.origins, self.detected)

    def _cluster(self) -> str:
        choices = self.groups.get("cluster", ["auto"])
        if len(choices) != 1:
            raise UsageError("a study runs on one cluster: send one study per cluster=")
        choice = str(choices[0])
        self._check_choice("cluster", choice)
        if choice == "auto":
            known = {name: self._known_as(path) for name, path in self._options("cluster").items()}
            choice, self.detected = machine.detect_cluster(known)
            self.said.append(self.detected)
        return choice

    @staticmethod
    def _known_as(path: Path) -> tuple[str, ...]:
        return tuple(OmegaConf.select(OmegaConf.load(path), "known_as") or ())

    def _options(self, group: str) -> dict[str, Path]:
        """Choices of a group: name -> file."""
        files = [file for folder in self.folders for file in (folder / group).glob("*.yaml")]
        found: dict[str, Path] = {}
        for file in sorted(files, key=lambda file: file.stem):
            if file.stem in found:  # Hydra would silently take ours
                raise UsageError(f"{file}: {found[file.stem]} has this name; give yours another")
            found[file.stem] = file
        return found

    def _check_choice(self, place: str, choice: Any, group: str = "") -> None:
        options = self._options(group or place)
        if choice is not None and choice not in options:
            near = difflib.get_close_matches(str(choice), options, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"{place}={choice}: choose one of {', '.join(options)}{hint}")

    def _blocks(self) -> list[dict[str, list[Any]]]:
        """What is swept: the command line's values, over those of the grid's blocks."""
        grids = self.groups.pop("grid", [None])
        if len(grids) != 1:
            raise UsageError("a study has one grid=; put several blocks into one grid instead")
        self._check_choice("grid", grids[0])
        asked = self.values | {k: v for k, v in self.groups.items() if k != "cluster"}
        self.origins |= dict.fromkeys(asked, "command line")
        if grids[0] is None:
            return [self.mine | asked]
        path = self._options("grid")[grids[0]]
        loaded = OmegaConf.to_container(OmegaConf.load(path))
        blocks = loaded.get("blocks") if isinstance(loaded, dict) else None
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise UsageError(f"{path}: a grid is `blocks:`, a list of `key: [values]`")
        ranges = [
            {key: value if isinstance(value, list) else [value] for key, value in block.items()}
            for block in blocks
        ]
        for group in ("cluster", "grid"):
            if any(group in block for block in ranges):
                raise UsageError(f"{path}: a block cannot choose the {group}; say {group}=…")
        for key in {key for block in ranges for key in block}:
            if key not in asked:
                self.origins[key] = f"grid={grids[0]}"
        return [self.mine | block | asked for block in ranges]

    def _combinations(self, block: dict[str, list[Any]]) -> Iterator[Settings]:
        values = {key: options for key, options in block.items() if key not in GROUPS}
        groups = itertools.product(block.get("workload", ["auto"]), block.get("recipe", ["plain"]))
        for workload, recipe in groups:
            self._check_choice("recipe", recipe)
            base = self._base(self._workload(workload, values), str(recipe))
            self._check_keys(base, values)
            for combination in itertools.product(*values.values()):
                chosen = dict(zip(values, combination, strict=True))
                yield self._settle(base, chosen)

    def _workload(self, choice: Any, values: dict[str, list[Any]]) -> str:
        self._check_choice("workload", choice)
        if choice != "auto":
            return str(choice)
        base = self._base("auto", "plain")
        devices = values.get("device") or [base.device]
        if len(devices) != 1:
            raise UsageError("workload=auto depends on the device: name a workload= to sweep both")
        device = devices[0] or values.get("cluster.device", [base.cluster.get("device")])[0]
        if device is None and base.cluster.get("launcher") == Launcher.LOCAL:
            device = Device.CUDA if machine.local_gpus() else Device.CPU
        choice = "digits" if device == Device.CPU else "resnet18_cifar10"
        sentence = f"workload=auto: {choice} with device={device or Device.CUDA}"
        self.said += [sentence] if sentence not in self.said else []
        self.origins.setdefault("workload", f"workload=auto with device={device}")
        return str(choice)

    def _base(self, workload: str, recipe: str) -> DictConfig:
        """The composed configuration of one choice of groups, with the person's own defaults."""
        chosen = {"cluster": self.groups["cluster"][0], "workload": workload, "recipe": recipe}
        overrides = [f"{group}={choice}" for group, choice in chosen.items()]
        extra = [f"hydra.searchpath=['file://{folder}']" for folder in self.folders[1:]]
        try:
            base = compose("config", overrides=[*overrides, *extra, *self.passed_on])
        except (HydraException, OmegaConfBaseException) as fault:
            raise UsageError(f"configuration: {_first_line(fault)}") from fault
        for key, value in self.personal.items():
            if key.startswith("workload.") and workload == "auto":
                continue
            self._check_keys(base, {key: [value]}, place=f"{personal_file()}: ")
            OmegaConf.update(base, key, typed_value(key, value))
            self.origins.setdefault(key, str(personal_file()))
        if workload != "auto":  # which only tells the device
            self._remember(chosen)
        return base

    def _remember(self, chosen: dict[str, str]) -> None:
        """Where the keys of each group come from: conf/recipe/{plain,warmup}.yaml."""
        for group, choice in chosen.items():
            taken = self._taken.setdefault(group, {})
            taken[choice] = None
            names = ",".join(taken)
            names = f"{{{names}}}" if len(taken) > 1 else names
            self.origins[f"{group}."] = f"conf/{group}/{names}.yaml"

    def _check_keys(self, base: DictConfig, values: dict[str, list[Any]], place: str = "") -> None:
        known = _keys(OmegaConf.to_container(base, resolve=False))
        for key in values:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]}?" if near else "hpml-jobs --help lists the keys"
                raise UsageError(f"{place}unknown key {key}: {hint}")

    @staticmethod
    def _settle(base: DictConfig, chosen: dict[str, Any]) -> Settings:
        """Every combination of a block sets the same keys, so the base is updated in place."""
        try:
            for key, value in chosen.items():
                OmegaConf.update(base, key, value)
            values = OmegaConf.to_container(base, resolve=True, throw_on_missing=True)
        except OmegaConfBaseException as fault:
            raise UsageError(f"configuration: {_first_line(fault)}") from fault
        return settle(dict(values))  # type: ignore[arg-type]


def _first_line(fault: Exception) -> str:
    if isinstance(fault, MissingMandatoryValue):
        return f"{fault.full_key} has no value; give {fault.full_key}=…"
    return str(fault).strip().splitlines()[0]


def _keys(values: Any, prefix: str = "") -> set[str]:
    """All dotted keys of nested mappings, inner nodes included."""
    if not isinstance(values, dict):
        return set()
    found = {f"{prefix}{key}" for key in values}
    return found.union(*(_keys(value, f"{prefix}{key}.") for key, value in values.items()))
