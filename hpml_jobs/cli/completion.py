"""What a shell completes: commands and options by typer, studies, keys and choices from files.

Neither Hydra nor torch is loaded: a shell waits for every answer.
"""

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hpml_jobs.core.cell import Device, Protocol, Strategy, SyncBuffers
from hpml_jobs.core.paths import conf_folder

PROGRAM = "hpml-jobs"

VARIABLE = f"_{PROGRAM}_COMPLETE".replace("-", "_").upper()
"""Set by the shell's script, named as typer wants it: this run is to answer."""

GROUPS = {"cluster": "slurm", "workload": "resnet18_cifar10", "recipe": "plain", "grid": None}
"""Every group of configs, with the file that has all its keys."""

_YES_OR_NO = (
    *("rerun", "trace", "pack", "collect_after", "set_epoch", "evaluate"),
    *("quantize.per_channel", "recipe.scaled", "recipe.decay_norm"),
)

CHOICES = {
    "strategy": tuple(strategy.value for strategy in Strategy),
    "device": tuple(device.value for device in Device),
    "protocol": tuple(p.value for p in Protocol if p is not Protocol.IMPORTED),
    "sync_buffers": tuple(buffers.value for buffers in SyncBuffers),
    "baseline": (Strategy.SINGLE.value, Strategy.DDP.value),
    **dict.fromkeys(_YES_OR_NO, ("true", "false")),
}


class Shell(StrEnum):
    """Shells that typer knows how to answer."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    ctx: typer.Context,
    shell: Annotated[Shell, typer.Argument(help="the shell that you type in")],
) -> None:
    """The shell's script that completes commands, options, studies, keys and choices.

    Example: hpml-jobs completion bash >> ~/.bashrc
    """
    _, script = _typer_says(ctx.find_root().command, f"source_{shell.value}")
    if shell is Shell.BASH:  # after `gpus=` comes its value, not a blank
        script = script.replace("    return 0\n", f"    {_NO_BLANK}\n    return 0\n")
    print(script)


_NO_BLANK = "[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace"


def answer(app: Callable[..., object], commands: Sequence[str]) -> int:
    """Tell the shell that asks how its last word may go on; exit code 1: not at all (fish)."""
    cut = _settle_words(commands)
    code, told = _typer_says(app, os.environ[VARIABLE])
    print("\n".join(line.removeprefix(cut) for line in told.splitlines()))
    return code


def _typer_says(app: Callable[..., object], instruction: str) -> tuple[int, str]:
    """Exit code and words of typer for `source_SHELL` (the script) or `complete_SHELL`."""
    os.environ[VARIABLE] = instruction
    told = io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(told):
        try:
            app(prog_name=PROGRAM)
        except SystemExit as end:
            code = end.code
    return code if isinstance(code, int) else 0, told.getvalue()


def _settle_words(commands: Sequence[str]) -> str:
    """Give typer the words as it wants them; returns what bash does not want to hear again.

    `submit` is the command that needs no name; bash cuts its words at `=`, and replaces only what
    comes after it.
    """
    environment = os.environ
    if "COMP_WORDS" not in environment:  # zsh and fish: one text up to the cursor
        typed = environment.get("_TYPER_COMPLETE_ARGS", "").split(" ")
        environment["_TYPER_COMPLETE_ARGS"] = " ".join(_with_command(typed, commands))
        return ""
    found: list[str] = []
    for word in environment["COMP_WORDS"].split("\n")[: int(environment["COMP_CWORD"]) + 1]:
        if found and (word.startswith("=") or found[-1].endswith("=")):
            found[-1] += word
        else:
            found.append(word)
    found = _with_command(found, commands)
    environment["COMP_WORDS"], environment["COMP_CWORD"] = "\n".join(found), str(len(found) - 1)
    key, given, _ = found[-1].rpartition("=")
    return key + given


def _with_command(typed: list[str], commands: Sequence[str]) -> list[str]:
    """The words up to the cursor, `submit` put in where no other command is there or begun."""
    first = typed[1] if len(typed) > 1 else ""
    begun = any(name.startswith(first) for name in commands) if len(typed) <= 2 else False
    return typed if begun or first in commands else [typed[0], "submit", *typed[1:]]


def studies(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of studies that begin so, the one sent last first."""
    outputs = ctx.params.get("outputs")
    if outputs is None:
        from hpml_jobs.plan.user_config import personal_outputs  # noqa: PLC0415

        outputs = personal_outputs()
    roots = [cells.parent for cells in Path(outputs).expanduser().glob("*/cells")]
    roots.sort(key=lambda root: root.stat().st_mtime, reverse=True)
    return [root.name for root in roots if root.name.startswith(incomplete)]


def keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """`key=` of every key that begins so; after the `=` (or a comma) what can be chosen."""
    key, given, value = incomplete.partition("=")
    if not given:
        return [f"{name}=" for name in _all_keys() if name.startswith(incomplete)]
    before, comma, last = value.rpartition(",")
    choices = _choices(key, ctx.params.get("config_dir"))
    return [f"{key}={before}{comma}{choice}" for choice in choices if choice.startswith(last)]


def _all_keys() -> list[str]:
    conf = conf_folder()
    nested = [
        f"{group}.{key}"
        for group, file in GROUPS.items()
        if file
        for key in _keys_in(conf / group / f"{file}.yaml")
    ]
    return [*GROUPS, *_keys_in(conf / "config.yaml"), *nested]


def _keys_in(file: Path) -> Iterator[str]:
    """Dotted keys of one of our configs, which nest two deep at most."""
    parent = ""
    for line in file.read_text().splitlines():
        found = re.match(r"( *)(\w+): *([^#]*)", line)
        if line.startswith("hydra:"):
            return
        if not found or found[2] == "defaults":
            continue
        key = f"{parent}.{found[2]}" if found[1] and parent else found[2]
        value = found[3].strip()
        parent = parent if found[1] else "" if value else key
        if value.startswith("{") and value != "{}":
            yield from (f"{key}.{name}" for name in re.findall(r"(\w+):", value))
        elif value:
            yield key


def _choices(key: str, own: Path | None) -> list[str]:
    """What a key can be; of a group its files, the person's own too."""
    if key not in GROUPS:
        return list(CHOICES.get(key, ()))
    folders = [conf_folder(), *([Path(own)] if own else [])]
    return sorted({file.stem for folder in folders for file in (folder / key).glob("*.yaml")})
