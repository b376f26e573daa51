"""Shell completion: commands and options from typer; studies, keys and choices from files.

A shell waits for every answer, so neither Hydra nor torch is imported.
"""

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hpml_jobs.cli.commands import COMMANDS, COMPLETION_VARIABLE, UNNAMED
from hpml_jobs.cli.help import GROUPS, KeyDoc
from hpml_jobs.cli.help import keys as keys_of_config
from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.paths import conf_folder
from hpml_jobs.core.script import ScriptLauncher
from hpml_jobs.core.strategies import Device, Strategy, SyncBuffers
from hpml_jobs.core.text import PROGRAM
from hpml_jobs.core.training_path import CompileMode, Precision

CHOICES = {
    "strategy": tuple(strategy.value for strategy in Strategy),
    "device": tuple(device.value for device in Device),
    "protocol": (Protocol.LAB.value, Protocol.FULL.value),
    "launcher": tuple(launcher.value for launcher in ScriptLauncher),
    "sync_buffers": tuple(buffers.value for buffers in SyncBuffers),
    "precision": tuple(precision.value for precision in Precision),
    "cudnn_benchmark": ("true", "false"),
    "compile": ("true", "false", *(mode.value for mode in CompileMode)),
    "baseline": (Strategy.SINGLE.value, Strategy.DDP.value),
}

TRUE_OR_FALSE = ("true", "false")


class Shell(StrEnum):
    """Shells that typer can answer."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    ctx: typer.Context,
    shell: Annotated[Shell, typer.Argument(help="your shell")],
) -> None:
    """Print the script that makes the shell complete commands, options, studies, keys and choices.

    Example: hpml-jobs completion bash >> ~/.bashrc
    """
    _, script = _ask_typer(ctx.find_root().command, f"source_{shell.value}")
    if shell is Shell.BASH:  # after `gpus=` comes its value, not a blank
        script = script.replace("    return 0\n", f"    {_NO_BLANK}\n    return 0\n")
    print(script)


_NO_BLANK = "[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace"


def answer(program: Callable[..., object]) -> int:
    """Print the completions of the shell's last word; exit code 1 means none (fish)."""
    prefix = _prepare_words()
    code, completions = _ask_typer(program, os.environ[COMPLETION_VARIABLE])
    print("\n".join(line.removeprefix(prefix) for line in completions.splitlines()))
    return code


def _ask_typer(program: Callable[..., object], instruction: str) -> tuple[int, str]:
    """Return typer's exit code and output for `source_SHELL` (script) or `complete_SHELL`."""
    os.environ[COMPLETION_VARIABLE] = instruction
    output = io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(output):
        try:
            program(prog_name=PROGRAM)
        except SystemExit as end:
            code = end.code
    return code if isinstance(code, int) else 0, output.getvalue()


def _prepare_words() -> str:
    """Write the typed words as typer expects them; return the prefix that bash does not replace.

    The command that needs no name is inserted. bash splits its words at `=`, and replaces only
    what follows it.
    """
    environment = os.environ
    if "COMP_WORDS" not in environment:  # zsh and fish: one text up to the cursor
        typed = environment.get("_TYPER_COMPLETE_ARGS", "").split(" ")
        environment["_TYPER_COMPLETE_ARGS"] = " ".join(_with_command(typed))
        return ""
    words: list[str] = []
    for word in environment["COMP_WORDS"].split("\n")[: int(environment["COMP_CWORD"]) + 1]:
        if words and (word.startswith("=") or words[-1].endswith("=")):
            words[-1] += word
        else:
            words.append(word)
    words = _with_command(words)
    environment["COMP_WORDS"], environment["COMP_CWORD"] = "\n".join(words), str(len(words) - 1)
    key, equals, _ = words[-1].rpartition("=")
    return key + equals


def _with_command(typed: list[str]) -> list[str]:
    """Return the words up to the cursor, with the unnamed command if no other is typed or begun."""
    first = typed[1] if len(typed) > 1 else ""
    begun = len(typed) <= 2 and any(name.startswith(first) for name in COMMANDS)
    return typed if begun or first in COMMANDS else [typed[0], UNNAMED, *typed[1:]]


def studies(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of studies that begin so, the most recently submitted first."""
    from hpml_jobs.study.selection import submitted_at

    roots = [cells.parent for cells in outputs_of_words(ctx).glob("*/cells")]
    roots.sort(key=submitted_at, reverse=True)
    return [root.name for root in roots if root.name.startswith(incomplete)]


def outputs_of_words(ctx: typer.Context) -> Path:
    """Return the folder of studies that the words so far select."""
    outputs = ctx.params.get("outputs")
    if outputs is None:
        from hpml_jobs.plan.user_config import user_outputs

        outputs = user_outputs()
    return Path(outputs).expanduser()


def keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return `key=` of every key that begins so; after `=` or a comma, the key's choices."""
    key, equals, value = incomplete.partition("=")
    if not equals:
        names = [*GROUPS, *(doc.key for doc in _key_docs())]
        return [f"{name}=" for name in names if name.startswith(incomplete)]
    before, comma, last = value.rpartition(",")
    choices = _choices(key, ctx.params.get("config_dir"))
    return [f"{key}={before}{comma}{choice}" for choice in choices if choice.startswith(last)]


def _key_docs() -> Iterator[KeyDoc]:
    """Yield all keys, those of groups with the group's name before them."""
    conf = conf_folder()
    yield from keys_of_config((conf / "config.yaml").read_text())
    for group, file in GROUPS.items():
        if file:
            for doc in keys_of_config((conf / group / f"{file}.yaml").read_text()):
                yield doc._replace(key=f"{group}.{doc.key}")


def _choices(key: str, config_dir: Path | None) -> Sequence[str]:
    """Return the values that a key can have; those of a group are files, the user's included."""
    if key in GROUPS:
        folders = [conf_folder()]
        if config_dir:
            folders.append(Path(config_dir))
        return sorted({file.stem for folder in folders for file in (folder / key).glob("*.yaml")})
    if key in CHOICES:
        return CHOICES[key]
    switches = {doc.key for doc in _key_docs() if doc.value in TRUE_OR_FALSE}
    return TRUE_OR_FALSE if key in switches else ()
