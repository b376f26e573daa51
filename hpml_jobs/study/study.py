"""The folder of a study: its paths, schema and lock; its last command with other keys."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from hpml_jobs.core.cluster import Cluster, cluster_of
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.script import Script
from hpml_jobs.core.secrets import hide_in_command
from hpml_jobs.core.text import VERSION, unix_time
from hpml_jobs.core.value import Document
from hpml_jobs.study.cell_folder import CellFolder, utc_now
from hpml_jobs.study.files import (
    encode,
    hold_lock,
    is_name,
    read_bytes,
    read_json,
    read_valid,
    reading,
    write_whole,
    writing,
)
from hpml_jobs.study.manifest import History, ManifestLine, append, fold, lines

SCHEMA = 1
"""Version of a study's folder. 1: first."""

LOCK_S = 60
"""How long a submission waits for another one to the same study, in seconds."""

COMMANDS = "commands.txt"
"""The file of the command lines of all submissions."""

COMMANDS_BYTES = 1_000_000
"""The largest file of commands that is read."""


class Study:
    """The folder of cells that are submitted together; every path in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.name = root.name
        self.manifest = root / "manifest.jsonl"
        self.about = root / "study.json"
        self.lock = root / "lock"
        self.cluster = root / "cluster.json"  # of the latest submission
        self.commands_file = root / COMMANDS  # of every submission, one per line
        self.cells_folder = root / "cells"
        self.slurm = root / "slurm"
        self.report = root / "report"
        # SLURM's last answers, for when it does not answer
        self.slurm_answers = root / "seen.json"

    @property
    def job_name(self) -> str:
        """The name of all its jobs: `singleton` serializes jobs by name."""
        return f"hpml-{self.name}"

    @property
    def closing_name(self) -> str:
        """The name of its follow-up jobs."""
        return f"{self.job_name}-closing"

    def slurm_log(self, job: str, part: int | str) -> Path:
        """Return what SLURM and the wrapper print to stderr: of a node, or of a pack's step."""
        return self.slurm / f"{job}_{part}_log.err"

    def cell(self, slug: str) -> CellFolder:
        """Return the folder of one cell."""
        return CellFolder(self.cells_folder / slug)

    def cells(self) -> list[CellFolder]:
        """Return the folder of every cell, by name; b64 comes before b512."""
        with reading(self.cells_folder):
            if not self.cells_folder.is_dir():
                return []
            with os.scandir(self.cells_folder) as entries:
                names = [entry.name for entry in entries if entry.is_dir()]
        by_name = sorted(filter(is_name, names), key=natural)
        return [CellFolder(self.cells_folder / name) for name in by_name]

    @property
    def created(self) -> float | None:
        """When it was made, in seconds since 1970; None if its version did not note it."""
        about = read_valid(self.about, Document) or {}
        return unix_time(str(about.get("created", "")))

    def create(self) -> None:
        """Make the folder, or check that this version may write into an existing one."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            # also where the group may write
            self.cells_folder.mkdir(mode=0o755, exist_ok=True)
            self.slurm.mkdir(mode=0o700, exist_ok=True)
            if not self.about.exists():
                about = {
                    "schema": SCHEMA,
                    "hpml_jobs": VERSION,
                    "created": utc_now(),
                }
                write_whole(self.about, encode(about))
        except OSError as fault:
            raise HpmlError(
                f"outputs folder {self.root} cannot be written: {fault.strerror}; "
                "give another with outputs=PATH"
            ) from fault
        self.check_schema()

    @contextmanager
    def submitting(self) -> Iterator[str]:
        """Make and lock the study while cells are selected and submitted: one submission at a time.

        Yield a sentence where the lock is a file because the file system has no flock. After an
        error, a study without a cell is removed, and the folder of the studies if it made that.

        Raises:
            HpmlError: another submission has held the lock for LOCK_S seconds.
        """
        has_outputs = self.root.parent.exists()
        self.create()
        with ExitStack() as held:
            with writing(self.lock):
                try:
                    file = held.enter_context(hold_lock(self.lock, LOCK_S))
                except TimeoutError as fault:
                    raise HpmlError(
                        f"{fault} for {LOCK_S} s: another submission to study {self.name} is "
                        "running; try again when it has ended"
                    ) from fault
                except IsADirectoryError as fault:
                    raise HpmlError(
                        f"{self.lock} is a folder: remove it, it must be a file"
                    ) from fault
            note = f"the file system of {self.root} has no flock: {file} is the lock"
            try:
                yield note if file else ""
            except BaseException:
                held.close()
                self._remove_empty(with_outputs=not has_outputs)
                raise

    def _remove_empty(self, *, with_outputs: bool) -> None:
        """Remove the folder if no cell was written into it; do nothing if it has anything else."""
        if self.cells() or self.manifest.exists():
            return
        with suppress(OSError):
            self.cells_folder.rmdir()
            self.slurm.rmdir()
            self.lock.unlink(missing_ok=True)
            self.commands_file.unlink(missing_ok=True)
            self.about.unlink()
            self.root.rmdir()
            if with_outputs:
                self.root.parent.rmdir()

    def check_schema(self) -> None:
        """Raise HpmlError if a newer version wrote the study."""
        with reading(self.about):
            try:
                about: Document = read_json(self.about, dict)
            except (FileNotFoundError, NotADirectoryError):
                return
        schema = about.get("schema")
        if isinstance(schema, bool) or not isinstance(schema, int):
            raise HpmlError(
                f"{self.about} has no schema number: it is damaged, or not of hpml_jobs; remove it "
                f"if {self.root} is a study of hpml_jobs"
            )
        if schema > SCHEMA:
            raise HpmlError(
                f"study {self.root} has schema {schema}, this hpml_jobs {VERSION} reads up to "
                f"{SCHEMA}: use hpml_jobs {about.get('hpml_jobs', 'newer')}, or another study="
            )

    def write_cluster(self, cluster: Cluster) -> None:
        """Save the cluster that cells are submitted to, for `resubmit`."""
        with writing(self.cluster):
            write_whole(self.cluster, encode(cluster))

    def read_cluster(self) -> Cluster:
        """Return the cluster of the latest submission.

        Raises:
            HpmlError: nothing was submitted, or this version cannot read the file.
        """
        with reading(self.cluster):
            try:
                return cluster_of(read_json(self.cluster, dict))
            except FileNotFoundError as fault:
                raise HpmlError(
                    f"study {self.name} was never submitted ({self.cluster} does not exist): "
                    "repeat the command that made it; finished cells are skipped"
                ) from fault

    def last_cluster(self) -> Cluster | None:
        """Return the cluster of the latest submission; None of imported studies."""
        try:
            return self.read_cluster()
        except HpmlError:
            return None

    def add_command(self, command: str) -> None:
        """Note the command of a submission; a disk that is full is for the submission to report."""
        with suppress(OSError), self.commands_file.open("a") as file:
            file.write(" ".join(command.splitlines()) + "\n")

    def commands(self) -> tuple[str, ...]:
        """Return the commands of the submissions, oldest first; none of a study before 0.7.0.

        They have the name that the study's folder has now. A line whose quotes are not closed was
        damaged, and is left out.
        """
        try:
            content = read_bytes(self.commands_file, COMMANDS_BYTES)
        except OSError:
            return ()
        commands = []
        for line in content.decode(errors="replace").splitlines():
            with suppress(ValueError):
                words = [
                    f"study={self.name}" if word.startswith("study=") else word
                    for word in shlex.split(line)
                ]
                if words:
                    commands.append(hide_in_command(shlex.join(words)))
        return tuple(commands)

    def append(self, line: ManifestLine) -> None:
        """Append a line to the manifest; it is on disk when this returns."""
        append(self.manifest, line)

    def lines(self) -> Iterator[ManifestLine]:
        """Yield the manifest's complete lines, oldest first."""
        return lines(self.manifest)

    def history(self) -> History:
        """Read the manifest and return what it says."""
        return fold(self.lines())


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key in which b64 comes before b512."""
    return [(int(part or 0), text) for text, part in re.findall(r"(\D*)(\d*)", name)]


PLACE_KEYS = (
    "gpus",
    "nodes",
    "batch",
    "global_batch",
    "strategy",
    "max_gpus",
    "min_efficiency",
    "gpu_hours",
    "rerun",
)
"""Keys of a submission that the command of another cell sets by itself, or that exclude them."""

MULTIRUN = ("-m", "--multirun")


def commands_of(commands: Sequence[str], script: Script | None) -> list[str]:
    """Return the submissions of a script with its arguments; all of them without a script.

    >>> commands = ["hpml-jobs script=train.py 'args=--n {batch}'", "hpml-jobs script=train.py"]
    >>> commands_of(commands, Script(path="train.py", args="--n {batch}")) == commands[:1]
    True
    """
    words = {f"script={script.path}", f"args={script.args}"} if script else set()
    needed = words - {"args="}
    return [command for command in commands if needed <= {*shlex.split(command)}]


def keys_of(command: str) -> dict[str, str]:
    """Return the keys that a noted command gives, with their values as they were typed.

    >>> keys_of("hpml-jobs -m gpus=1,2 grid=lab")
    {'gpus': '1,2', 'grid': 'lab'}
    """
    pairs = [word.partition("=") for word in shlex.split(command)]
    return {key: value for key, is_given, value in pairs if is_given}


def limit_of(commands: Sequence[str]) -> float | None:
    """Return min_efficiency of the last submission; None if it was none with auto.

    >>> limit_of(["hpml-jobs gpus=auto min_efficiency=0.8"]), limit_of(["hpml-jobs gpus=2"])
    (0.8, None)
    """
    for command in commands[-1:]:
        with suppress(KeyError, ValueError):
            return float(keys_of(command)["min_efficiency"])
    return None


def command_with(commands: Sequence[str], keys: Mapping[str, object]) -> str | None:
    """Return the last submission's command with the keys of another cell; None if unknown.

    Another key with several values stays as it is, with `-m`.

    >>> commands = ["hpml-jobs -m gpus=1,2 global_batch=64 study=mine strategy=ddp,fsdp"]
    >>> command_with(["hpml-jobs gpus=auto min_efficiency=0.8"], {"gpus": 2})
    'hpml-jobs gpus=2'
    >>> command_with(commands, {"gpus": 16, "nodes": 2, "batch": 32})
    'hpml-jobs gpus=16 nodes=2 batch=32 study=mine'
    >>> command_with(commands, {"gpus": "1,2", "batch": 32, "repeats": 6})
    'hpml-jobs -m gpus=1,2 batch=32 repeats=6 study=mine'
    """
    if not commands:
        return None
    program, *words = shlex.split(commands[-1])
    replaced = {*PLACE_KEYS, *MULTIRUN, *keys}
    kept = [word for word in words if word.partition("=")[0] not in replaced]
    added = [f"{key}={value}" for key, value in keys.items()]
    is_sweep = not {*words}.isdisjoint(MULTIRUN)
    if any("," in word for word in (*added, *(kept if is_sweep else ()))):
        added.insert(0, "-m")
    return shlex.join([program, *added, *kept])
