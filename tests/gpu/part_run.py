"""A run of a part: a process of its own with a time limit, whose figures are read as they come."""

import contextlib
import importlib
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.processes import die_with_parent
from hpml_jobs.plan.machine import local_gpus
from hpml_jobs.study.files import writing
from tests.gpu.figures import Figure, Machine, Part, PartResult
from tests.gpu.processes import ROOT, child_environment, end_group
from tests.gpu.sizes import SHORT, Pace, pace_of

NO_CARD = 3
"""Exit code of a part's process on a machine without a GPU."""

INTERRUPTED = "interrupted by a signal"

LOOK_S = 1.0
"""How often a running part's figures are looked for: a visit that is killed loses this much."""

CELL_FILES = (
    "cell.json",
    "record.json",
    "end.json",
    "iterations.npz",
    "log*.txt",
    "trace-rank*.json.gz",
)
"""What is kept of cells."""


class Visit(NamedTuple):
    """How parts run: in rehearsal, with short sizes, up to a time on the monotonic clock.

    `cells` is the archive to which the files of their cells are added.
    """

    is_rehearsal: bool = False
    is_short: bool = False
    end_s: float = inf
    cells: Path | None = None

    def left_s(self) -> float:
        """Return the seconds that are left for parts."""
        return self.end_s - time.monotonic()

    def limit_s(self, part: Part) -> float:
        """Return the time limit of a part on this machine's first GPU."""
        return (part.short_s if self.is_short else 60 * part.minutes) * pace().limits

    def least_s(self, part: Part) -> float:
        """Return the seconds without which a part is not begun there."""
        return part.least_s * pace().limits


FULL = Visit()


def pace() -> Pace:
    """Return the pace of this machine's first GPU."""
    return pace_of(next(iter(local_gpus()), None))


def run_part(
    part: Part,
    log: Path,
    *,
    visit: Visit = FULL,
    on_news: Callable[[PartResult], None] = lambda _result: None,
) -> PartResult:
    """Run a part in a process of its own, to its end or its time limit; add its output to a log.

    `on_news` gets what there is so far, while figures come.

    Raises:
        HpmlError: the log cannot be written.
    """
    begin, date = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    limit_s = visit.limit_s(part)
    left_s = visit.left_s()
    with writing(log), log.open("ab") as output:
        output.write(f"\n{date} {part.name}\n".encode())
    with tempfile.TemporaryDirectory(prefix="hpml-gpu-") as name:
        lines = Path(name) / "figures.jsonl"

        def result(failure: str | None, *, is_interrupted: bool = False) -> PartResult:
            machine, figures = _read(lines)
            return PartResult(
                part=part.name,
                date=date,
                seconds=time.monotonic() - begin,
                machine=machine,
                figures=figures,
                failure=failure,
                is_short=visit.is_short,
                is_interrupted=is_interrupted,
            )

        words = [sys.executable, "-m", "tests.gpu", part.name, "--as-part", name]
        words += ["--rehearse"] * visit.is_rehearsal + ["--short"] * visit.is_short
        with log.open("ab") as output:
            process = subprocess.Popen(
                words,
                cwd=ROOT,
                env=child_environment(OMP_NUM_THREADS="1"),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                for _ in _news(process, lines, min(limit_s, left_s)):
                    on_news(result("interrupted", is_interrupted=True))
            except subprocess.TimeoutExpired:
                if left_s < limit_s:
                    return result(
                        f"stopped after {left_s:.0f} s by --budget", is_interrupted=True
                    )
                return result(f"stopped after {limit_s / 60:.3g} minutes")
            except KeyboardInterrupt:
                return result(INTERRUPTED, is_interrupted=True)
            finally:
                # after its end too: what it left would hold memory of the card
                end_group(process)
                if visit.cells:
                    add_cells(part, Path(name), visit.cells)
        code = process.returncode
        last_line = log.read_text(errors="replace").strip().rpartition("\n")[2]
        return result(f"exit code {code}: {last_line[:300]}" if code else None)


def check_archive(archive: Path) -> None:
    """Make the archive of cells, if it does not exist.

    Raises:
        HpmlError: it cannot be written, or is no tar file.
    """
    try:
        with writing(archive), tarfile.open(archive, "a"):
            pass
    except tarfile.TarError as fault:
        raise HpmlError(f"{archive} is no tar file: {fault}") from fault


def add_cells(part: Part, folder: Path, archive: Path) -> None:
    """Add what the cells of a part left to an archive.

    Raises:
        HpmlError: it cannot be written.
    """
    paths = sorted(path for pattern in CELL_FILES for path in folder.rglob(pattern))
    with writing(archive), tarfile.open(archive, "a") as cells:
        for path in paths:
            cells.add(path, Path(part.name) / path.relative_to(folder))


def _news(
    process: "subprocess.Popen[bytes]", file: Path, limit_s: float
) -> Iterator[None]:
    """Yield when a file has grown, until a process has ended.

    Raises:
        subprocess.TimeoutExpired: it has not ended within the limit.
    """
    deadline, size = time.monotonic() + limit_s, 0
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(LOOK_S, max(0.0, deadline - time.monotonic())))
            return
        if time.monotonic() >= deadline:
            raise subprocess.TimeoutExpired(process.args, limit_s)
        if file.exists() and file.stat().st_size > size:
            size = file.stat().st_size
            yield


def _read(path: Path) -> tuple[Machine, tuple[Figure, ...]]:
    """Read the lines of a part: the machine, then its figures."""
    whole, _, _ = path.read_bytes().rpartition(b"\n") if path.exists() else (b"",) * 3
    lines = whole.splitlines()
    if not lines:
        return Machine(card=None), ()
    machine = msgspec.json.decode(lines[0], type=Machine)
    return machine, tuple(msgspec.json.decode(line, type=Figure) for line in lines[1:])


def measure_part(
    part: Part, folder: Path, *, rehearse: bool, is_short: bool = False
) -> None:
    """Measure a part in this process; write the machine and each figure as a line."""
    die_with_parent()
    from tests.gpu.bench import Bench  # noqa: PLC0415 -- torch, in a part's process only
    from tests.gpu.machine import read_machine, why_no_card  # noqa: PLC0415
    from tests.gpu.rehearsal import rehearsal  # noqa: PLC0415

    reason = why_no_card()
    if reason and not rehearse:
        sys.stderr.write(reason + "\n")
        sys.exit(NO_CARD)
    module = importlib.import_module(f"tests.gpu.parts.{part.name}")
    machine = read_machine()
    with (folder / "figures.jsonl").open("ab", buffering=0) as lines:
        if rehearse:
            lines.write(
                msgspec.json.encode(msgspec.structs.replace(machine, card=None)) + b"\n"
            )
            with rehearsal(folder) as bench:
                for figure in module.measure(bench):
                    lines.write(msgspec.json.encode(figure) + b"\n")
            return
        lines.write(msgspec.json.encode(machine) + b"\n")
        card = machine.card or ""
        sizes = SHORT.at(pace_of(card)) if is_short else None
        for figure in module.measure(Bench(folder, sizes=sizes, card=card)):
            lines.write(msgspec.json.encode(figure) + b"\n")
