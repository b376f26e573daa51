"""The folders of config files, ours and the user's (--config-dir); a bounded reader of them."""

import io
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import conf_folder
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import one_of
from hpml_jobs.plan.removed import refuse_removed
from hpml_jobs.study.files import read_bytes, reason_of

GROUPS = ("cluster", "workload", "recipe", "grid")
"""Config groups: folders whose files are the choices of `cluster=NAME` and so on."""

ONLY_ON = "only_on"
"""The key of a grid's block that names the device which it is for: cuda or cpu."""

BLOCK_NAME = "name"
"""The key of a grid's block that names it: plan has a line per name."""


class ConfigFolders:
    """Our conf/, and the user's own folder where one is given."""

    def __init__(self, config_dir: Path | None) -> None:
        self.ours = conf_folder()
        self.users = config_dir.resolve() if config_dir else None

    def choices(self, group: str) -> dict[str, Path]:
        """Return the choices of a group: name -> file.

        Raises:
            UsageError: a user's file has the name of one of ours, which Hydra would silently take.
        """
        choices: dict[str, Path] = {}
        for folder in filter(None, (self.ours, self.users)):
            for file in (folder / group).glob("*.yaml"):
                if file.stem in choices:
                    raise UsageError(
                        f"{file}: {choices[file.stem]} has this name; give yours another"
                    )
                choices[file.stem] = file
        return dict(sorted(choices.items()))

    def check_choice(self, group: str, choice: Any, place: str = "") -> None:
        """Refuse a choice that a group does not have; `place` says where it was made."""
        choices = self.choices(group)
        if group == "workload" and str(choice).endswith(".py"):
            raise UsageError(
                f"{place or group}={choice}: measure it with script={choice}"
            )
        if not isinstance(choice, str) or choice not in choices:
            refuse_removed(f"{group}={choice}")
            raise UsageError(
                f"{place or group}={choice}: {one_of(str(choice), choices)}"
            )
        if self.users is not None:
            read_yaml(choices[choice])  # Hydra's own complaints do not name the line

    def keys_of_own(self, group: str, choice: str) -> dict[str, str]:
        """Return the dotted keys that the user's own file of a choice sets, each with the file."""
        file = self.choices(group).get(choice)
        if file is None or self.users is None or not file.is_relative_to(self.users):
            return {}
        keys = self._mapping(file)
        return {f"{group}.{key!s}": str(file) for key in keys if key != "defaults"}

    @staticmethod
    def _mapping(path: Path) -> dict[str, Any]:
        loaded = read_yaml(path) or {}
        if not isinstance(loaded, dict):
            raise UsageError(f"{path}: must hold keys and values, e.g. 'name: mine'")
        return loaded

    def grid_blocks(self, name: str) -> list[dict[str, list[Any]]]:
        """Return the blocks of a grid: each maps keys to the values they take.

        A key beside `blocks:` is one of every block.

        Raises:
            UsageError: the file is not a list of blocks, one chooses the cluster or a grid, is for
                a device that does not exist, or has a name that is no text.
        """
        path = self.choices("grid")[name]
        loaded = read_yaml(path)
        blocks = loaded.get("blocks") if isinstance(loaded, dict) else None
        if not isinstance(blocks, list) or not all(
            isinstance(block, dict) for block in blocks
        ):
            raise UsageError(f"{path}: a grid is `blocks:`, a list of `key: [values]`")
        of_all_blocks = {key: loaded[key] for key in loaded if key != "blocks"}
        return [_checked(of_all_blocks | block, path) for block in blocks]


def _checked(block: dict[str, Any], path: Path) -> dict[str, list[Any]]:
    """Return a block in which a single value is a list of one."""
    for group in ("cluster", "grid"):
        if group in block:
            raise UsageError(
                f"{path}: a block cannot choose the {group}; use {group}=NAME"
            )
    if block.get(ONLY_ON, Device.CPU) not in [*Device]:
        raise UsageError(f"{path}: {ONLY_ON} is one of {', '.join(Device)}")
    return {
        key: value if isinstance(value, list) else [value]
        for key, value in block.items()
    }


def read_yaml(path: Path, *, resolve: bool = False) -> Any:
    """Return the content of a YAML file; with `resolve`, `${...}` in it is replaced.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such file.
        UsageError: it cannot be read; the message names the file, the line and the reason.
    """
    try:
        text = read_bytes(path).decode()
        return OmegaConf.to_container(
            OmegaConf.load(io.StringIO(text)), resolve=resolve
        )
    except (FileNotFoundError, NotADirectoryError):
        raise
    except yaml.MarkedYAMLError as fault:
        line = f" line {fault.problem_mark.line + 1}" if fault.problem_mark else ""
        raise UsageError(f"{path}{line} is not YAML: {fault.problem}") from fault
    except yaml.YAMLError as fault:
        raise UsageError(f"{path} is not YAML: {str(fault).splitlines()[0]}") from fault
    except RecursionError as fault:
        raise UsageError(
            f"{path} cannot be read: nested too deeply, or in itself"
        ) from fault
    except (OSError, UnicodeDecodeError) as fault:
        raise UsageError(f"{path} cannot be read: {reason_of(fault)}") from fault
    except (ValueError, OmegaConfBaseException) as fault:
        raise UsageError(
            f"{path} cannot be read: {str(fault).splitlines()[0]}"
        ) from fault
