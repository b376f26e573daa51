"""Commands of submissions with other keys: what to type for a cell that is missing."""

import shlex
from collections.abc import Collection, Mapping, Sequence

PLACE_KEYS = frozenset(
    ("gpus", "nodes", "batch", "global_batch", "strategy", "ladder.start", "ladder.factor")
)
"""Keys of a submission that the command of another cell sets by itself, or that exclude them."""

LADDER = "grid=ladder"
"""The grid that chooses the batches."""

MULTIRUN = ("-m", "--multirun")


def has_grid(commands: Sequence[str]) -> bool:
    """Return whether the last submission's command names a grid, whose blocks may set any key."""
    return any(word.startswith("grid=") for word in shlex.split(" ".join(commands[-1:])))


def command_with(
    commands: Sequence[str], keys: Mapping[str, object], without: Collection[str] = ()
) -> str | None:
    """Return the last submission's command with the keys of another cell; None if unknown.

    `without` are more keys that it shall not have. Another key with several values stays as it is,
    with `-m`.

    >>> commands = ["hpml-jobs -m gpus=1,2 global_batch=64 study=mine strategy=ddp,fsdp"]
    >>> command_with(commands, {"gpus": 16, "nodes": 2, "batch": 32})
    'hpml-jobs gpus=16 nodes=2 batch=32 study=mine'
    >>> command_with(["hpml-jobs grid=ladder study=mine"], {"gpus": 2, "batch": 32})
    'hpml-jobs gpus=2 batch=32 study=mine'
    """
    if not commands:
        return None
    program, *given = shlex.split(commands[-1])
    replaced = PLACE_KEYS | {*keys} | {*without}
    left_out = {*MULTIRUN, LADDER}
    kept = [
        word for word in given if word.partition("=")[0] not in replaced and word not in left_out
    ]
    several = ["-m"] if any("," in word for word in kept) and {*given} & {*MULTIRUN} else []
    return shlex.join(
        [program, *several, *(f"{key}={value}" for key, value in keys.items()), *kept]
    )
