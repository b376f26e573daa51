"""The reader of a user's YAML files: bounded, and every fault in words."""

import io
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from hpml_jobs.errors import UsageError
from hpml_jobs.study.reader import read_bytes, reason_of

MOST_VALUES = 100_000
"""Values of a file with all aliases written out: a few lines of aliases of aliases are billions."""


def read_yaml(path: Path, *, resolve: bool = False) -> Any:
    """Return the content of a YAML file; with `resolve`, `${...}` in it is replaced.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such file.
        UsageError: it cannot be read; the message names the file, the line and the reason.
    """
    try:
        text = read_bytes(path).decode()
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None and _count(root, {}) > MOST_VALUES:
            raise UsageError(f"{path} has more than {MOST_VALUES:,} values: remove its aliases (*)")
        return OmegaConf.to_container(OmegaConf.load(io.StringIO(text)), resolve=resolve)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except yaml.MarkedYAMLError as fault:
        line = f" line {fault.problem_mark.line + 1}" if fault.problem_mark else ""
        raise UsageError(f"{path}{line} is not YAML: {fault.problem}") from fault
    except yaml.YAMLError as fault:
        raise UsageError(f"{path} is not YAML: {str(fault).splitlines()[0]}") from fault
    except RecursionError as fault:
        raise UsageError(f"{path} cannot be read: nested too deeply, or in itself") from fault
    except OSError as fault:
        raise UsageError(f"{path} cannot be read: {reason_of(fault)}") from fault
    except (ValueError, OmegaConfBaseException) as fault:
        raise UsageError(f"{path} cannot be read: {str(fault).splitlines()[0]}") from fault


def _count(node: yaml.Node, counts: dict[yaml.Node, int]) -> int:
    """Return the values below a node with its aliases written out; `counts` are of known nodes.

    Raises:
        RecursionError: it has itself below it, or is nested too deeply.
    """
    if node not in counts:
        below = node.value if isinstance(node, yaml.CollectionNode) else []
        inner = [part for part in below if isinstance(part, yaml.Node)]
        inner += [value for part in below if isinstance(part, tuple) for value in part]
        counts[node] = 1 + sum(_count(value, counts) for value in inner)
    return counts[node]
