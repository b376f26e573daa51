"""Commands of submissions with other keys: what to type for a cell that is missing."""

import shlex
from collections.abc import Mapping, Sequence

PLACE_KEYS = ("gpus", "nodes", "batch", "strategy", "accumulate", "grid")
"""Keys of a submission that the command of another cell sets by itself."""


def command_with(commands: Sequence[str], keys: Mapping[str, object]) -> str | None:
    """Return the last submission's command with the keys of another cell; None if unknown.

    >>> commands = ["hpml-jobs -m gpus=1,2 batch=32,64 study=mine strategy=ddp,fsdp"]
    >>> command_with(commands, {"gpus": 16, "nodes": 2, "batch": 32})
    'hpml-jobs gpus=16 nodes=2 batch=32 study=mine'
    """
    if not commands:
        return None
    try:
        program, *given = shlex.split(commands[-1])
    except ValueError:
        return None
    kept = [
        word
        for word in given
        if word.partition("=")[0].lstrip("+") not in PLACE_KEYS and word not in ("-m", "--multirun")
    ]
    return shlex.join([program, *(f"{key}={value}" for key, value in keys.items()), *kept])
