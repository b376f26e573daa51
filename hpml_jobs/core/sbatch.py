"""sbatch's options that the program sets: the keys and the environment variables of each."""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.text import whole_number


class Option(NamedTuple):
    """What sets an option of sbatch: keys as they are typed, if any, else the program alone.

    `default_of` is the key that a variable gives a default to. `variables` are those beside
    SBATCH_NAME, which sbatch prefers to a script's lines.
    """

    keys: str = ""
    short: str = ""
    default_of: str = ""
    variables: tuple[str, ...] = ()


_CPUS, _GPUS = "loader_workers= and threads=", "gpus= and gpu_type="
_MEMORY = "cluster.mem_gb_per_gpu="

OPTIONS = {
    "time": Option("minutes=", "t", "minutes", ("SBATCH_TIMELIMIT",)),
    "time-min": Option("minutes="),
    "partition": Option("cluster.partition=", "p", "cluster.partition"),
    "account": Option("cluster.account=", "A", "cluster.account"),
    "clusters": Option(
        "cluster.clusters=", "M", "cluster.clusters", ("SLURM_CLUSTERS",)
    ),
    "nodes": Option("nodes=", "N"),
    "cpus-per-task": Option(_CPUS, "c"),
    "cpus-per-gpu": Option(_CPUS),
    "gres": Option(_GPUS),
    "gpus": Option(_GPUS, "G"),
    "gpus-per-node": Option(_GPUS),
    "gpus-per-socket": Option(_GPUS),
    "gpus-per-task": Option(_GPUS),
    "tres-per-task": Option(_GPUS),
    "mem": Option(_MEMORY, "", "", ("SBATCH_MEM_PER_NODE",)),
    "mem-per-gpu": Option(_MEMORY),
    "mem-per-cpu": Option(_MEMORY),
    "exclusive": Option("cluster.isolate="),
    "dependency": Option("cluster.isolate=", "d"),
    "requeue": Option("", "", "", ("SBATCH_NO_REQUEUE",)),
    "array": Option("", "a", "", ("SBATCH_ARRAY_INX",)),
    "ntasks": Option("", "n"),
    "ntasks-per-node": Option(),
    "tasks-per-node": Option(),
    "overcommit": Option("", "O"),
    "ntasks-per-core": Option(),
    "ntasks-per-gpu": Option(),
    "ntasks-per-socket": Option(),
    "job-name": Option("", "J"),
    "output": Option("", "o"),
    "error": Option("", "e"),
    "open-mode": Option(),
    "signal": Option(),
    "kill-on-invalid-dep": Option(),
    "wrap": Option(),
    "wait": Option("", "W"),
    "parsable": Option(),
    "quiet": Option("", "Q"),
    "test-only": Option(),
    "help": Option("", "h"),
    "usage": Option(),
    "version": Option("", "V"),
}
"""Options by their long names; sbatch(1), also the variables."""

MEMORY = frozenset(("mem", "mem-per-cpu", "mem-per-gpu"))
"""Options of which a job has one: any of them replaces the others."""

_OTHER_VARIABLES = {
    "bb": ("SBATCH_BURST_BUFFER",),
    "cpu-freq": ("SBATCH_CPU_FREQ_REQ",),
    "no-kill": ("SBATCH_NO_KILL",),
    "switches": ("SBATCH_REQ_SWITCH", "SBATCH_WAIT4SWITCH"),
    "verbose": ("SBATCH_DEBUG",),
}
"""Variables beside SBATCH_NAME of options that only `cluster.sbatch.NAME` sets."""

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

_WRITTEN = re.compile(r"^#SBATCH --([a-z0-9-]+)", re.MULTILINE)


def user_options(
    typed_options: Mapping[str, Any], *, sets_memory: bool
) -> dict[str, Any]:
    """Return `cluster.sbatch` by sbatch's names; `sets_memory`: the program sets the memory.

    Raises:
        UsageError: a name is not that of an option, or one that the program sets: whole, as its
            short name, or cut off, which sbatch takes too.
    """
    options = {}
    for typed, value in typed_options.items():
        name = typed.replace("_", "-").strip("-")
        if not _NAME.fullmatch(name.lower()):
            raise UsageError(
                f"cluster.sbatch.{typed.splitlines()[0]}: not an option of sbatch"
            )
        if name.lower() != "mem-per-cpu" or sets_memory:
            _refuse_ours(name, f"cluster.sbatch.{typed}=")
        options[name] = value
    return options


def _refuse_ours(name: str, typed: str) -> None:
    """Refuse an option that the program sets."""
    is_short = len(name) == 1
    for long, option in OPTIONS.items():
        if not (name == option.short if is_short else long.startswith(name.lower())):
            continue
        if option.keys:
            raise UsageError(
                f"{typed}: use {option.keys} instead, for sbatch's --{long}"
            )
        raise UsageError(
            f"{typed}: leave it out, the program sets sbatch's --{long} itself"
        )
    if is_short:
        raise UsageError(f"{typed}: write the long name of sbatch's -{name}")


class Default(NamedTuple):
    """A value that an environment variable of sbatch gives to a key."""

    variable: str
    value: str | int


def variables_of(option: str) -> tuple[str, ...]:
    """Return the variables that sbatch prefers to a script's line of an option.

    >>> variables_of("time")
    ('SBATCH_TIME', 'SBATCH_TIMELIMIT')
    """
    extra = _OTHER_VARIABLES.get(option, ())
    if option in OPTIONS:
        extra = OPTIONS[option].variables
    return (f"SBATCH_{option.upper().replace('-', '_')}", *extra)


def replacing_variables(script: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that would replace what a script, or the program, sets, by option.

    Those of the memory replace nothing where the script requests none.
    """
    written = _WRITTEN.findall(script)
    has_memory = not MEMORY.isdisjoint(written)
    names = dict.fromkeys((*OPTIONS, *written))
    return {
        variable: name
        for name in names
        if name not in MEMORY or has_memory
        for variable in variables_of(name)
        if variable in environment
    }


def default_variables(
    environment: Mapping[str, str], cluster: Mapping[str, Any]
) -> dict[str, Default]:
    """Return the variables that give a value to a key, by key: of a cluster, where it has none.

    In a job only the name of SLURM's cluster counts: the others are the defaults of an outer shell.
    """
    if "SLURM_JOB_ID" in environment:
        environment = {"SLURM_CLUSTERS": environment.get("SLURM_CLUSTERS", "")}
    defaults = {}
    for name, option in OPTIONS.items():
        variable = next(filter(environment.get, variables_of(name)), None)
        if not option.default_of or variable is None:
            continue
        value: str | int | None = environment[variable]
        if name == "time":
            value = parse_minutes(environment[variable])
        elif (
            cluster.get(name, "") is not None
            or cluster.get("gpu_request") == name  # the GPUs choose the partition
        ):
            continue
        if value is not None:
            defaults[option.default_of] = Default(variable, value)
    return defaults


def parse_duration_s(text: str) -> float | None:
    """Parse `1-02:03:04`, `1:02:03` or `2:03` into seconds; None for UNLIMITED and the like.

    >>> parse_duration_s("1-02:03:04"), parse_duration_s("2:03"), parse_duration_s("UNLIMITED")
    (93784.0, 123.0, None)
    """
    days, _, rest = text.rpartition("-")
    parts = rest.split(":")
    numbers = [*map(whole_number, (days or "0", *parts))]
    if len(parts) > _PARTS_OF_TIME or None in numbers:
        return None
    whole_days, *rest_of_day = (number or 0.0 for number in numbers)
    seconds = 0.0
    for number in rest_of_day:
        seconds = seconds * 60 + number
    return whole_days * 86_400 + seconds


_PARTS_OF_TIME = 3
"""Hours, minutes, seconds."""


def parse_minutes(text: str) -> int | None:
    """Return a time limit as sbatch reads it, in whole minutes; None if it is none.

    >>> [parse_minutes(text) for text in ("90", "1:30", "1:30:00", "1-2", "1-0:30", "UNLIMITED")]
    [90, 2, 90, 1560, 1470, None]
    """
    text = text.strip()
    if not text[:1].isdecimal():
        return None
    # after days, hours need minutes and seconds; without days, minutes need seconds
    needed = 2 if "-" in text else 1
    missing = needed - text.count(":")
    seconds = parse_duration_s(text + ":00" * missing)
    return math.ceil((seconds or 0) / 60) or None
