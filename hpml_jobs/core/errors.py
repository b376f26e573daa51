"""Errors that end the program with one line: what is wrong, where, and how to fix it."""

from collections.abc import Mapping
from math import inf


class HpmlError(Exception):
    """The command failed: its message is printed in one line, exit code 1."""

    exit_code = 1


class NodeFaultError(HpmlError):
    """This node cannot run the cell, another one may: as HpmlError, and the node is avoided."""


class InterruptError(HpmlError):
    """Ctrl-C ended the command: as HpmlError with what was done until then, exit code 130."""

    exit_code = 130


class UsageError(HpmlError):
    """The command line is wrong: as HpmlError, exit code 2."""

    exit_code = 2


EXAMPLES: Mapping[str, float | str] = {
    "gpus": 2,
    "batch": 32,
    "strategy": "ddp",
    "epochs": 5,
    "iterations": 40,
    "repeats": 4,
    "minutes": 60,
    "threads": 2,
    "loader_workers": 4,
    "accumulate": 2,
    "window": "50,200",
    "cluster.mem_gb_per_gpu": 64,
    "data.limit": 1000,
    "workload.lr": 0.05,
    "workload.momentum": 0.8,
    "workload.weight_decay": 0.001,
    "cluster.gpu_hours_budget": 10,
    "cluster.confirm_gpu_hours": 5,
    "min_efficiency": 0.7,
}
"""A value of a key that messages and `hpml-jobs help` suggest."""


def example(key: str) -> str:
    """Return the end of a message that a key is refused with.

    >>> example("batch"), example("workload.classes")
    (', e.g. batch=32', '')
    """
    return f", e.g. {key}={EXAMPLES[key]}" if key in EXAMPLES else ""


def refuse_below(least: int, key: str, value: float | None) -> None:
    """Raise UsageError if the value of a key is less than the least; None: it has none."""
    if value is not None and not least <= value < inf:
        raise UsageError(f"{key}={value:.15g}: use {least} or more{example(key)}")


def refuse_not_positive(key: str, value: float | None) -> None:
    """Raise UsageError if the value of a key is not more than 0; None: it has none."""
    if value is not None and not 0 < value < inf:
        raise UsageError(f"{key}={value:.15g}: use more than 0{example(key)}")
