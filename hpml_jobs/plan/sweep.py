"""From the command line to one checked `Settings` per combination of a sweep."""

import itertools
import math
import operator
import re
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from omegaconf import DictConfig

from hpml_jobs.core.built_in import SCRIPT
from hpml_jobs.core.cluster import Launcher
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.recipe import PLAIN
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.workload import Optimizer, refuse_file
from hpml_jobs.plan import machine
from hpml_jobs.plan.candidates import (
    AUTO_WORDS,
    candidates,
    goal_of,
    refuse_sweeps,
)
from hpml_jobs.plan.composer import AUTO, Composer, check_keys, settings_of
from hpml_jobs.plan.config_folders import BLOCK_NAME, GROUPS, ONLY_ON, ConfigFolders
from hpml_jobs.plan.keys import Overrides, checked_value, parse_overrides
from hpml_jobs.plan.settings import Settings, Sweep
from hpml_jobs.plan.user_config import file_defaults, named_clusters

Ranges = dict[str, list[Any]]
"""Keys and config groups with the values that each takes: their product is swept."""

MOST_CELLS = 100_000
"""Cells of one command line; 10,000 take 10 s to plan."""

OWN_CODE = tuple(
    f"workload.{key}" for key in ("model", "data", "loss", "optimizer", "schedule")
)
"""Keys that may name a function of the user."""


def expand(
    overrides: list[str], *, multirun: bool, config_dir: Path | None = None
) -> Sweep:
    """Return every combination of a command line.

    Raises:
        UsageError: an override that cannot be parsed, an unknown key or choice, or a wrong type.
    """
    asked = [word.partition("=")[0] for word in overrides if word in AUTO_WORDS]
    overrides = [_as_meant(word) for word in overrides if word not in AUTO_WORDS]
    # a grid sweeps by itself
    has_grid = any(text.startswith("grid=") for text in overrides)
    parsed = parse_overrides(overrides, multirun=multirun or has_grid)
    configs = ConfigFolders(config_dir)
    with initialize_config_dir(
        str(configs.ours), version_base="1.3", job_name="hpml_jobs"
    ):
        return _expand(parsed, configs, asked)


_QUOTED = r"""('([^'\\]|\\.)*'|"([^"\\]|\\.)*")"""
_IN_QUOTES = re.compile(f"{_QUOTED}( *, *{_QUOTED})*", re.DOTALL)
"""A value in Hydra's own quotes, or several, which are swept."""


def _as_meant(text: str) -> str:
    """Return an override as Hydra's grammar has it, of keys whose values are typed without it.

    >>> [_as_meant(text) for text in ("hosts=a,b", "window=5,9", "unit=tokens", "args={gpus}")]
    ["cluster.hosts='a,b'", "window='5,9'", 'workload.unit=tokens', "args='{gpus}'"]
    >>> [_as_meant(text) for text in ("args='-b {batch}'", "args='a' 'b'")]
    ["args='-b {batch}'", "args='\\\\'a\\\\' \\\\'b\\\\''"]
    """
    typed, _, value = text.partition("=")
    key = {"hosts": "cluster.hosts", "unit": "workload.unit"}.get(typed, typed)
    is_text = typed in ("script", "args", "hosts", "window") and value != "null"
    if is_text and not _IN_QUOTES.fullmatch(value):
        quoted = re.sub(r"(\\*)'", r"\1\1\\'", value)
        value = "'" + re.sub(r"(\\+)$", r"\1\1", quoted) + "'"
    return f"{key}={value}" if value else text


def _expand(
    overrides: Overrides, configs: ConfigFolders, asked: Sequence[str]
) -> Sweep:
    default_groups, origins = _groups_of_files(overrides, configs)
    choices = default_groups | overrides.values
    default_cluster = "ssh" if "cluster.hosts" in overrides.values else AUTO
    cluster, detected = _choose_cluster(
        choices.get("cluster", [default_cluster]), configs
    )
    grids = choices.get("grid", [None])
    blocks = _blocks(overrides, grids, default_groups, configs, origins)
    composer = Composer(configs, cluster, overrides.raw)
    blocks, left_out = _blocks_of_device(composer, blocks)
    notes = [detected, *left_out]
    if asked:
        refuse_sweeps(asked, blocks, grids[0])
        (values,) = blocks
        config = composer.compose(AUTO, PLAIN.name)
        device = _device(composer, values, "auto chooses for one device=")
        values |= candidates(asked, config, device, values)
        origins |= {key: f"{key}=auto" for key in asked}
    settings: list[Settings] = []
    names: list[str] = []
    for block in blocks:
        values = _without(block, (*GROUPS, BLOCK_NAME))
        for workload, recipe in _groups_of_block(block, configs):
            name = workload
            if workload == AUTO:
                name, device = _default_workload(composer, values)
                notes.append(f"workload=auto: {name} with device={device}")
                origins.setdefault("workload", f"workload=auto with device={device}")
            _check_size(len(settings) + math.prod(map(len, values.values())))
            settings += _combinations(composer, name, recipe, values)
        name_of_block, *_ = block.get(BLOCK_NAME, [""])
        names += [name_of_block] * (len(settings) - len(names))
    if not settings:
        raise UsageError("no cell: a range is empty")
    notes.append(composer.variables_text(set[str]().union(*blocks)))
    _check_size(sum(combination.repeats for combination in settings))
    _check_one_study(settings)
    sentences = [*filter(None, dict.fromkeys(notes))]
    goal = goal_of(asked, settings[0]) if asked else None
    origins = composer.origins | origins
    return Sweep(settings, sentences, origins, names, detected, goal)


def _groups_of_block(
    block: Ranges, configs: ConfigFolders
) -> Iterator[tuple[str, str]]:
    """Yield each workload of a block with each recipe, which are checked when they are used."""
    workloads = block.get("workload", [AUTO])
    if block.get("script", [None]) != [None]:
        workloads = [SCRIPT]
    for workload, recipe in itertools.product(
        workloads, block.get("recipe", [PLAIN.name])
    ):
        configs.check_choice("recipe", recipe)
        configs.check_choice("workload", workload)
        yield str(workload), str(recipe)


def _check_size(cells: int) -> None:
    if cells > MOST_CELLS:
        raise UsageError(
            f"{cells:,} cells are more than {MOST_CELLS:,}: submit fewer at a time"
        )


def _groups_of_files(
    overrides: Overrides, configs: ConfigFolders
) -> tuple[Ranges, dict[str, str]]:
    """Return the config groups that files of defaults choose and the command line does not.

    The files are beside the choices.
    """
    for file, name in named_clusters():
        configs.check_choice("cluster", name, place=f"{file}: clusters")
    ranges: Ranges = {}
    origins = {}
    for group, default in file_defaults(None).items():
        if group in GROUPS and group not in overrides.values:
            ranges[group] = [default.value]
            origins[group] = str(default.file)
    return ranges, origins


def _choose_cluster(choices: list[Any], configs: ConfigFolders) -> tuple[str, str]:
    """Return the cluster's profile, and why `auto` became it (empty where it was named)."""
    if len(choices) != 1:
        raise UsageError("a study runs on one cluster: submit one study per cluster=")
    profile = str(choices[0])
    configs.check_choice("cluster", profile)
    if profile != AUTO:
        return profile, ""
    return machine.detect_cluster(configs.choices("cluster"))


def _blocks(
    overrides: Overrides,
    grids: list[Any],
    default_groups: Ranges,
    configs: ConfigFolders,
    origins: dict[str, str],
) -> list[Ranges]:
    """Return what is swept, block by block; the origins of its keys are added to `origins`.

    The command line's values go over those of a grid's block, and these over the user's defaults.
    """
    if len(grids) != 1:
        raise UsageError(
            "a study has one grid=; put several blocks into one grid instead"
        )
    grid = grids[0]
    if grid is not None:
        configs.check_choice("grid", grid)
    typed = _without(overrides.values, ("cluster", "grid"))
    for key in _OF_BLOCK:
        if key in typed:
            raise UsageError(f"{key}=: only the block of a grid has it")
    replaced = {
        other for key, values in typed.items() for other in _replaced(key, values)
    }
    defaults = _without(default_groups, ("cluster", "grid"))
    blocks = []
    for block in [{}] if grid is None else configs.grid_blocks(grid):
        kept = {
            key: [checked_value(key, value) for value in values]
            for key, values in block.items()
            if key not in replaced
        }
        origins |= dict.fromkeys(_without(kept, _OF_BLOCK), f"grid={grid}")
        if BLOCK_NAME in block and {"gpus", "batch"} & typed.keys():
            raise UsageError(
                f"grid={grid} has its own gpus= and batch=: leave them out, or use grid=lab"
            )
        blocks.append(defaults | kept | typed)
    origins |= dict.fromkeys(typed, "command line")
    return blocks


_OF_BLOCK = (ONLY_ON, BLOCK_NAME)
"""What a block says of itself."""


def _without(ranges: Ranges, keys: Container[str]) -> Ranges:
    return {key: values for key, values in ranges.items() if key not in keys}


def _replaced(key: str, values: list[Any]) -> tuple[str, ...]:
    """Return the keys of a grid's blocks that a key of the command line takes the place of."""
    match key, values:
        case _, [None]:
            return ()
        case "batch", _:
            return ("global_batch",)
        case "global_batch", _:
            return ("batch",)
        case "iterations", _:
            return ("data.limit", "epochs")
        case "loader", ["device"]:
            return ("loader_workers",)
    return ()


def _blocks_of_device(
    composer: Composer, blocks: list[Ranges]
) -> tuple[list[Ranges], list[str]]:
    """Return the blocks that are for the device, each once, and sentences on those left out.

    Raises:
        UsageError: a block is for one device, and both are swept; or none is for this device.
    """
    if not any(ONLY_ON in block for block in blocks):
        return blocks, []
    device = Device.CUDA
    kept: list[Ranges] = []
    left_out: list[Ranges] = []
    for block in blocks:
        values = _without(block, (ONLY_ON,))
        device = _device(
            composer, values, "this grid depends on the device: name one device="
        )
        if block.get(ONLY_ON, [device]) != [device]:
            left_out.append(values)
        # the command line may have replaced what differs
        elif not _is_among(values, kept):
            kept.append(values)
    if not kept:
        raise UsageError(
            f"this grid has no block for device={device}: choose another grid="
        )
    if device is Device.CUDA or all(_is_among(values, kept) for values in left_out):
        return kept, []
    return kept, ["device=cpu: this grid's cells for CPUs"]


def _is_among(block: Ranges, others: list[Ranges]) -> bool:
    """Return whether one of the other blocks has the same cells, by whatever name."""
    values = _without(block, _OF_BLOCK)
    return any(_without(other, _OF_BLOCK) == values for other in others)


def _default_workload(composer: Composer, values: Ranges) -> tuple[str, Device]:
    """Return what `workload=auto` becomes by the device, and the device."""
    remedy = "workload=auto depends on the device: name a workload= to sweep both"
    device = _device(composer, values, remedy)
    return "digits" if device is Device.CPU else "resnet18_cifar10", device


def _device(composer: Composer, values: Ranges, remedy: str) -> Device:
    """Return the device of a block: as given, else the cluster's; on a local machine, what it has.

    Raises:
        UsageError: with the remedy, both devices are swept.
    """
    config = composer.compose(AUTO, PLAIN.name)
    devices = values.get("device") or [config.device]
    if len(devices) != 1:
        raise UsageError(remedy)
    device = (
        devices[0] or values.get("cluster.device", [config.cluster.get("device")])[0]
    )
    if device is None and config.cluster.get("launcher") == Launcher.LOCAL:
        return Device.CUDA if machine.local_gpus() else Device.CPU
    return Device.CPU if device == Device.CPU else Device.CUDA


def _combinations(
    composer: Composer, workload: str, recipe: str, values: Ranges
) -> Iterator[Settings]:
    """Yield the settings of the product of `values`, with one choice of groups."""
    config = composer.compose(workload, recipe)
    check_keys(config, values)
    for key in OWN_CODE:
        for option in map(str, values.get(key, [])):
            refuse_file(key, option)
    _check_rate(config, workload, values)
    try:
        yield from settings_of(config, values)
    except UsageError as error:
        raise composer.with_place(error, values) from error


def _check_rate(config: DictConfig, workload: str, values: Ranges) -> None:
    """Refuse a built-in optimizer at the learning rate that was chosen for the other one."""
    usual = str(config.workload.get("optimizer"))
    if "workload.lr" in values or usual not in _USUAL_LR:
        return
    for optimizer in values.get("workload.optimizer", []):
        if optimizer in _USUAL_LR and optimizer != usual:
            raise UsageError(
                f"workload.optimizer={optimizer}: workload.lr={config.workload.lr:g} of "
                f"workload={workload} is for {usual}; give workload.lr= too, e.g. "
                f"workload.lr={_USUAL_LR[Optimizer(optimizer)]:g}"
            )


_USUAL_LR = {Optimizer.SGD: 0.1, Optimizer.ADAMW: 0.001}
"""Learning rates to begin with, by optimizer."""

_ONE_PER_STUDY = (
    *("study", "outputs", "cluster", "data.root", "minutes"),
    *("pack", "collect_after", "rerun", "script", "shared_files"),
    *("max_gpus", "min_efficiency", "gpu_hours"),
)


def _check_one_study(sweep: list[Settings]) -> None:
    """Refuse a sweep over what a study, or a cell in it, has only one of."""
    for name in _ONE_PER_STUDY:
        value_of = operator.attrgetter(name)
        first = value_of(sweep[0])
        if any(value_of(settings) != first for settings in sweep):
            key = "cluster.KEY=" if name == "cluster" else f"{name}="
            raise UsageError(
                f"{key} cannot be swept: a study has only one; submit a study for each"
            )
