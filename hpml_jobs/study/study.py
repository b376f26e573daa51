"""The folder of a study: its paths, its schema, and taking turns at it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from hpml_jobs import __version__
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.files import encode, turn, write_whole
from hpml_jobs.study.manifest import History, ManifestLine, append, fold, lines

SCHEMA = 1
"""Version of a study's folder. 1: first."""

TURN_S = 60
"""How long a submission waits for another one to the same study."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Study:
    """One folder of cells asked for together."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.name = root.name
        self.manifest = root / "manifest.jsonl"
        self.about = root / "study.json"
        self.lock = root / "lock"
        self.cluster = root / "cluster.json"  # as it was when cells were sent last
        self.cells_folder = root / "cells"
        self.slurm = root / "slurm"
        self.report = root / "report"
        self.slurm_answers = root / "seen.json"  # SLURM's last answers, for when it does not answer

    def report_tables(self, suffix: str) -> Path:
        """Return the report's tables in one format: md, tex or json."""
        return self.report / f"tables.{suffix}"

    def slurm_log(self, job: str, part: int | str) -> Path:
        """Return what SLURM and the wrapper print to stderr: of a node, or of a pack's step."""
        return self.slurm / f"{job}_{part}_log.err"

    def cell(self, slug: str) -> CellFolder:
        """One cell's paths."""
        return CellFolder(self.cells_folder / slug)

    def cells(self) -> list[CellFolder]:
        """Every cell that was ever asked for, by name; numbers in names in their own order."""
        if not self.cells_folder.is_dir():
            return []
        paths = sorted(self.cells_folder.iterdir(), key=lambda path: _natural(path.name))
        return [CellFolder(path) for path in paths if path.is_dir()]

    def create(self) -> None:
        """Make the folder, or check that this program may write into the one that is there."""
        try:
            self.cells_folder.mkdir(parents=True, exist_ok=True)
            self.slurm.mkdir(mode=0o700, exist_ok=True)
            if not self.about.exists():
                write_whole(self.about, encode({"schema": SCHEMA, "hpml_jobs": __version__}))
        except OSError as fault:
            raise HpmlError(
                f"outputs folder {self.root} cannot be written: {fault.strerror}; "
                "give another with outputs=PATH"
            ) from fault
        self.check_schema()

    @contextmanager
    def submitting(self) -> Iterator[None]:
        """Hold the study while cells are chosen and sent: two submissions take turns.

        Raises:
            HpmlError: another one holds it for longer than anyone would wait.
        """
        try:
            with turn(self.lock, TURN_S):
                yield
        except TimeoutError as fault:
            raise HpmlError(
                f"{fault} for {TURN_S} s: another submission to study {self.name} is under way"
            ) from fault

    def check_schema(self) -> None:
        """Refuse a study that a newer program wrote."""
        try:
            about = msgspec.json.decode(self.about.read_bytes(), type=dict)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as fault:
            raise HpmlError(f"{self.about} cannot be read: {fault.strerror}") from fault
        except ValueError as fault:
            raise HpmlError(f"{self.about} cannot be read: {fault}") from fault
        schema = about.get("schema")
        if not isinstance(schema, int) or schema > SCHEMA:
            raise HpmlError(
                f"study {self.root} has schema {schema}, this hpml_jobs {__version__} reads up to "
                f"{SCHEMA}: use hpml_jobs {about.get('hpml_jobs', 'newer')}, or another study="
            )

    def keep_cluster(self, cluster: Cluster) -> None:
        """Remember where cells were sent, so that some can be sent again."""
        try:
            write_whole(self.cluster, encode(cluster))
        except OSError as fault:
            raise HpmlError(f"{self.cluster} cannot be written: {fault.strerror}") from fault

    def kept_cluster(self) -> Cluster:
        """The cluster that cells were sent to last.

        Raises:
            HpmlError: none was, or this program does not understand it.
        """
        try:
            return msgspec.json.decode(self.cluster.read_bytes(), type=Cluster)
        except FileNotFoundError as fault:
            raise HpmlError(
                f"study {self.name} does not say where it was sent ({self.cluster} is not there): "
                "give the command that made it once more, it sends what is missing"
            ) from fault
        except (OSError, ValueError) as fault:
            raise HpmlError(f"{self.cluster} cannot be read: {fault}") from fault

    def append(self, line: ManifestLine) -> None:
        """Add a line to the manifest, on the disk before this returns."""
        append(self.manifest, line)

    def lines(self) -> Iterator[ManifestLine]:
        """The manifest's whole lines, oldest first."""
        return lines(self.manifest)

    def history(self) -> History:
        """What the manifest says, read once."""
        return fold(self.lines())


def _natural(name: str) -> list[tuple[int, str]]:
    """A sort key in which b64 comes before b512."""
    return [(int(part or 0), text) for text, part in re.findall(r"(\D*)(\d*)", name)]


def check_name(name: str) -> str:
    """A study's name: one folder name of letters, digits, `.`, `_`, `-`; never a path."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise UsageError(
            f"study={name!r} is not a name: letters, digits, '.', '_' and '-' only, no '..' or '/' "
            "(the folder that studies are written to is outputs=PATH)"
        )
    return name


def find(outputs: Path, name: str | None) -> Study:
    """The study of a name, or the one that was sent last.

    Raises:
        HpmlError: there is none; the message names those that are there.
    """
    try:
        folders = [path for path in outputs.iterdir() if (path / "cells").is_dir()]
    except OSError:
        folders = []
    names = ", ".join(sorted(path.name for path in folders)) or "none"
    if name is not None:
        root = outputs / check_name(name)
        if root not in folders:
            raise HpmlError(f"no study {name} in {outputs} (there: {names})")
    else:
        if not folders:
            raise HpmlError(
                f"no study in {outputs}: send one first, or name the folder with --outputs PATH"
            )
        root = max(folders, key=_last_sent)
    study = Study(root)
    study.check_schema()
    return study


def _last_sent(root: Path) -> float:
    manifest = root / "manifest.jsonl"
    return (manifest if manifest.exists() else root).stat().st_mtime
