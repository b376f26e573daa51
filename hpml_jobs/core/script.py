"""A training script of the user that is started unchanged and measured from outside."""

import re
import shlex
from enum import StrEnum
from typing import NamedTuple

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.value import Value

PLACEHOLDERS = ("batch", "gpus", "nodes", "global_batch", "seed", "folder")
"""What `args` may have in braces, filled for every cell; `folder` is one of the attempt's own."""

PLACEHOLDER_FORM = re.compile(r"\{([A-Za-z_]+)\}")

LOCAL_RANK = re.compile(r"\blocal[-_]rank\b")
"""The option by which a script learns its GPU from torch's older launcher, in both spellings."""

LOCAL_RANK_REMEDY = (
    "let the script read LOCAL_RANK, or take both --local-rank and --local_rank below "
    "script='-m torch.distributed.launch' launcher=python"
)


READS_ALL = "each process reads all data, so that an epoch takes as long as on one"


class Merged(NamedTuple):
    """Why there is no record of a script, and what is to be said of one that there is."""

    fault: str = ""
    note: str = ""


class ScriptLauncher(StrEnum):
    """The way in which the processes of a script are started."""

    TORCHRUN = "torchrun"  # a process per GPU, with torchrun's variables
    SRUN = "srun"  # a process per GPU, with the variables of a task of srun instead
    PYTHON = "python"  # one process, which starts the others itself


class Script(Value, frozen=True, kw_only=True):
    """A script, its arguments as they were typed, and the windows in which it is measured.

    `path` is a file below the folder of the submission, or `-m` and a module. `window` has the
    numbers of iterations of the warm-up and of every later window; None: passes over a loader.
    With `stop` the script is ended after the last window, without it the script runs to its end.
    Records of versions before 0.10 may have a window without exchange of gradients.
    """

    path: str
    args: str = ""
    launcher: ScriptLauncher = ScriptLauncher.TORCHRUN
    window: tuple[int, int] | None = None
    stop: bool = True

    def __post_init__(self) -> None:
        """Refuse windows without iterations, unknown placeholders and unbalanced quotes."""
        if self.window is not None and min(self.window) < 2:
            typed = ",".join(map(str, self.window))
            raise UsageError(
                f"window={typed}: give 2 or more iterations each, e.g. window=50,200"
            )
        try:
            shlex.split(self.args)
        except ValueError as fault:
            raise UsageError(f"args={self.args}: {fault}".lower()) from fault
        unknown = [
            name
            for name in PLACEHOLDER_FORM.findall(self.args)
            if name not in PLACEHOLDERS
        ]
        if unknown:
            names = " ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise UsageError(
                f"args has {{{unknown[0]}}}, which nothing fills: use {names}"
            )

    @property
    def module(self) -> str | None:
        """The module of `-m pkg.train`; None for a file."""
        is_module = self.path.startswith("-m ")
        return self.path.removeprefix("-m ").strip() if is_module else None

    @property
    def name(self) -> str:
        """The last part of the file's or module's name, without .py; others than letters are _."""
        path = (self.module or self.path.removesuffix(".py")).replace("/", ".")
        return (
            re.sub(r"[^\w-]+", "_", path.rpartition(".")[2], flags=re.ASCII) or "script"
        )

    @property
    def text(self) -> str:
        """The script as it is started, for people: `torchrun train.py --batch {batch}`."""
        return " ".join(filter(None, (self.launcher.value, self.path, self.args)))

    def has_placeholder(self, name: str) -> bool:
        """Return whether the arguments have a placeholder."""
        return name in PLACEHOLDER_FORM.findall(self.args)

    @property
    def takes_batch(self) -> bool:
        """Whether its arguments have the batch, per GPU or of all."""
        return self.has_placeholder("batch") or self.has_placeholder("global_batch")

    def command(self, values: dict[str, str]) -> list[str]:
        """Return the script and its arguments with the placeholders filled, as a command's words.

        >>> script = Script(path="-m pkg.train", args="--batch {batch} --name 'my run' --x {}")
        >>> script.command({"batch": "32"})
        ['-m', 'pkg.train', '--batch', '32', '--name', 'my run', '--x', '{}']
        """
        words = [
            PLACEHOLDER_FORM.sub(lambda match: values[match[1]], word)
            for word in shlex.split(self.args)
        ]
        program = ["-m", self.module] if self.module else [self.path]
        return [*program, *words]
