"""Shell completion: commands and options from typer; studies, keys and choices from files.

A shell waits for every answer, so neither Hydra nor torch is imported.
"""

import contextlib
import inspect
import io
import os
import string
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument

from hpml_jobs.cli.commands import COMMANDS, COMPLETION_VARIABLE, UNNAMED, function_of
from hpml_jobs.cli.help import GROUPS, TOPICS, Folders, all_keys, explanations, files_of
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.paths import conf_folder
from hpml_jobs.core.text import PROGRAM


def completion(
    ctx: typer.Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], Argument(help="your shell")],
) -> None:
    """Print the script that makes the shell complete commands, options, studies, keys and choices.

    Example: hpml-jobs completion bash >> ~/.bashrc
    """
    _, script = _ask_typer(ctx.find_root().command, f"source_{shell}")
    if shell == "bash":  # after `gpus=` and `folder/` no blank follows
        script = script.replace("    return 0\n", f"    {_NO_BLANK}\n    return 0\n")
    print(script)


_NO_BLANK = (
    "[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/] ]] && compopt -o nospace"
)


def answer(program: typer.Typer) -> int:
    """Print the completions of the shell's last word; exit code 1 means none (fish)."""
    program.command("help")(_help)
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
    for word in environment["COMP_WORDS"].split("\n")[
        : int(environment["COMP_CWORD"]) + 1
    ]:
        if words and (word.startswith("=") or words[-1].endswith("=")):
            words[-1] += word
        else:
            words.append(word)
    words = _with_command(words)
    environment["COMP_WORDS"], environment["COMP_CWORD"] = (
        "\n".join(words),
        str(len(words) - 1),
    )
    key, equals, _ = words[-1].rpartition("=")
    return key + equals


def _with_command(typed: list[str]) -> list[str]:
    """Return the words up to the cursor, with the unnamed command if no other is typed or begun."""
    names = (*COMMANDS, "help")
    first = "".join(typed[1:2])
    is_begun = len(typed) <= 2 and any(name.startswith(first) for name in names)
    if is_begun or first in names:
        return typed
    return [typed[0], UNNAMED, *typed[1:]]


def _help_words(incomplete: str) -> list[str]:
    """Return the words that have a page or an entry of help and begin so; first only the pages."""
    from hpml_jobs.cli.entries import Entries

    if not incomplete:
        return [*TOPICS, *COMMANDS]
    words = {*TOPICS, *COMMANDS, *explanations(), *Entries([conf_folder()]).words()}
    return sorted(word for word in words if word.startswith(incomplete))


def _help(word: Annotated[str, Argument(autocompletion=_help_words)]) -> None:
    """Show a page of help."""


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


class StudiesAndKeys:
    """Completion of `[STUDY] [KEY=VALUE]...`: studies, and a command's keys with their words."""

    def __init__(self, keys: Mapping[str, Sequence[str]]) -> None:
        self.keys = keys

    def complete(self, ctx: typer.Context, incomplete: str) -> list[str]:
        """Return what begins so: a name if none was typed, `key=`, or the values of a key."""
        key, equals, value = incomplete.partition("=")
        if equals:
            words = self.keys.get(key, ())
            return [f"{key}={word}" for word in words if word.startswith(value)]
        typed = ctx.params.get("words") or ()
        has_name = any("=" not in word for word in typed)
        names = [] if has_name else studies(ctx, incomplete)
        return names + [f"{name}=" for name in self.keys if name.startswith(incomplete)]


def keys_of(command: str) -> Collection[str]:
    """Return the keys that a command takes beside its study."""
    for parameter in inspect.signature(function_of(command)).parameters.values():
        for argument in getattr(parameter.annotation, "__metadata__", ()):
            complete = getattr(argument, "autocompletion", None)
            words = getattr(complete, "__self__", None)
            if isinstance(words, StudiesAndKeys):
                return [*words.keys]
    return ()


def cells(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of cells that begin so, of the study that was named, else of the latest."""
    from hpml_jobs.study.selection import find

    try:
        study = find(outputs_of_words(ctx), ctx.params.get("study"))
    except HpmlError:
        return []
    return [cell.slug for cell in study.cells() if cell.slug.startswith(incomplete)]


def files(*suffixes: str) -> Callable[[str], list[str]]:
    """Return the completion of a path of a file with one of these suffixes, by way of folders."""

    def begun(incomplete: str) -> list[str]:
        folder, slash, name = incomplete.rpartition("/")
        try:
            paths = sorted(Path(f"{folder}{slash}" or ".").expanduser().iterdir())
        except OSError:
            return []
        listed = [path for path in paths if path.name.startswith(name or _NOT_HIDDEN)]
        names = [f"{path.name}/" for path in listed if path.is_dir()]
        names += [path.name for path in listed if path.name.endswith(suffixes)]
        return [f"{folder}{slash}{name}" for name in names]

    return begun


_NOT_HIDDEN = tuple(f"{string.ascii_letters}{string.digits}_-")

VALUES: Mapping[str, Callable[[str], list[str]]] = {
    "script": files(".py"),
    "data.root": files(),
    "outputs": files(),
}
"""The completion of the values of keys that are paths."""


def keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return `key=` of every key that begins so; after `=` or a comma, the key's values."""
    folders = [conf_folder()]
    if config_dir := ctx.params.get("config_dir"):
        folders.append(Path(config_dir))
    key, equals, value = incomplete.partition("=")
    if not equals:
        return [f"{name}=" for name in all_keys(folders) if name.startswith(incomplete)]
    before, comma, last = value.rpartition(",")
    if key == "study":
        words = studies(ctx, last)
    elif key in VALUES:
        words = VALUES[key](last)
    else:
        words = [word for word in _words(key, folders) if word.startswith(last)]
    return [f"{key}={before}{comma}{word}" for word in words]


def _words(key: str, folders: Folders) -> list[str]:
    """Return the words that a key accepts; those of a group are files, the user's included."""
    from hpml_jobs.plan.key_types import choices_of

    return sorted(files_of(key, folders)) if key in GROUPS else choices_of(key)
