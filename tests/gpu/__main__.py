"""Measure on a GPU: `python -m tests.gpu [PART...]`; write gpu.json, gpu.csv, measured.md in docs/.

Parts run by value, so that a short visit measures the most important figures. A finding that makes
what later parts measure useless ends the run. Each part is a process of its own with a time limit:
parts in this process would hold memory of the card that the cells of other parts are refused for.
Figures are kept as they come: a part that is stopped, at its limit, by a signal or with the
machine, keeps those it has measured.
"""

import argparse
import contextlib
import importlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import msgspec

from hpml_jobs.plan.machine import local_gpus
from tests.gpu import page
from tests.gpu.catalog import PARTS, part_named
from tests.gpu.figures import (
    RESULTS,
    Figure,
    Machine,
    Part,
    PartResult,
    Results,
    findings,
    gate_finding,
    left_out_lines,
    number_text,
)
from tests.gpu.processes import ROOT, child_environment, end_group
from tests.gpu.sizes import pace_of

NO_CARD = 3
"""Exit code of a part's process on a machine without a GPU."""

INTERRUPTED = "interrupted by a signal"

LOOK_S = 1.0
"""How often a running part's figures are looked for: a visit that is killed loses this much."""


def run_part(
    part: Part,
    log: Path,
    *,
    rehearse: bool = False,
    on_news: Callable[[PartResult], None] = lambda _result: None,
) -> PartResult:
    """Run a part in a process of its own, to its end or its time limit; add its output to a log.

    `on_news` gets what there is so far, while figures come.
    """
    begin, date = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    minutes = minutes_of(part)
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
                is_interrupted=is_interrupted,
            )

        words = [sys.executable, "-m", "tests.gpu", part.name, "--as-part", name]
        words += ["--rehearse"] if rehearse else []
        with log.open("ab") as output:
            output.write(f"\n{date} {part.name}\n".encode())
            output.flush()
            process = subprocess.Popen(
                words,
                cwd=ROOT,
                env=child_environment(OMP_NUM_THREADS="1"),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                for _ in _news(process, lines, 60 * minutes):
                    on_news(result("interrupted", is_interrupted=True))
            except subprocess.TimeoutExpired:
                return result(f"stopped after {minutes:.3g} minutes")
            except KeyboardInterrupt:
                return result(INTERRUPTED, is_interrupted=True)
            finally:
                end_group(process)  # after its end too: what it left would hold memory of the card
        code = process.returncode
        last_line = log.read_text(errors="replace").strip().rpartition("\n")[2]
        return result(f"exit code {code}: {last_line[:300]}" if code else None)


def _news(process: "subprocess.Popen[bytes]", file: Path, limit_s: float) -> Iterator[None]:
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


def minutes_of(part: Part) -> float:
    """Return the time limit of a part on this machine's first GPU."""
    return part.minutes * pace_of(next(iter(local_gpus()), None)).limits


def _read(path: Path) -> tuple[Machine, tuple[Figure, ...]]:
    """Read the lines of a part: the machine, then its figures."""
    whole, _, _ = path.read_bytes().rpartition(b"\n") if path.exists() else (b"",) * 3
    lines = whole.splitlines()
    if not lines:
        return Machine(card=None), ()
    machine = msgspec.json.decode(lines[0], type=Machine)
    return machine, tuple(msgspec.json.decode(line, type=Figure) for line in lines[1:])


def measure_part(part: Part, folder: Path, *, rehearse: bool) -> None:
    """Measure a part in this process; write the machine and each figure as a line."""
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
            lines.write(msgspec.json.encode(msgspec.structs.replace(machine, card=None)) + b"\n")
            with rehearsal(folder) as bench:
                for figure in module.measure(bench):
                    lines.write(msgspec.json.encode(figure) + b"\n")
            return
        lines.write(msgspec.json.encode(machine) + b"\n")
        for figure in module.measure(Bench(folder, card=machine.card or "")):
            lines.write(msgspec.json.encode(figure) + b"\n")


def _stop(_signal: int, _frame: FrameType | None) -> None:
    """Leave as after Ctrl-C, so that the present part is ended first."""
    raise KeyboardInterrupt


def print_part(part: Part, result: PartResult, lines: list[str]) -> None:
    """Print the figures of a part beside their ranges, then lines on them."""
    print(f"{part.name}: {result.seconds:.0f} s")
    for expected in part.expected:
        figure = result.figure(expected.key)
        value = number_text(figure.value if figure else None)
        range_text = expected.on(result.machine.card or "").range_text
        print(f"  {expected.text:62} {value:>10}  expected: {range_text}")
    for line in left_out_lines(part, result):
        print(f"  {line}")
    if result.is_interrupted:
        print(f"  {part.name}: {result.failure}")
    for line in lines:
        print(f"  finding: {line}", flush=True)


def add(result: PartResult, path: Path) -> None:
    """Add a result to the file of results, if its part came to name its card."""
    if result.machine.card is not None:
        Results.read(path).with_part(result).write(path)


def keep(result: PartResult, path: Path = RESULTS) -> None:
    """Add a result to the file of results and write its section and its CSV file."""
    add(result, path)
    if path == RESULTS:
        page.write()


def log_of(options: argparse.Namespace) -> Path:
    """Return the file that has the output of the parts."""
    return Path(options.results).with_suffix(".log")


def run_parts(parts: Sequence[Part], options: argparse.Namespace) -> bool:
    """Run parts up to a finding that makes the rest useless; return whether one gave a finding."""
    has_findings = False
    for part in parts:
        print(f"\n{part.name}: at most {minutes_of(part):.3g} minutes", flush=True)
        result = run_part(
            part,
            log_of(options),
            rehearse=options.rehearse,
            on_news=lambda result: add(result, options.results),
        )
        if options.rehearse:
            lines = [f"{part.name}: {result.failure}"] if result.failure else []
        else:
            lines = findings(part, result)
        print_part(part, result, lines)
        has_findings |= bool(lines)
        if options.rehearse:
            continue
        keep(result, options.results)
        if result.failure == INTERRUPTED:
            raise KeyboardInterrupt
        if (reason := gate_finding(part, result)) and not options.keep_going:
            print(f"\nended, since later parts would measure nothing that can be used: {reason}")
            break
    return has_findings


def main() -> None:
    """Run the parts; exit with 1 if one failed or gave a finding, 2 for a wrong name."""
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(names)}; default: all"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of results")
    parser.add_argument(
        "--rehearse", action="store_true", help="on the CPU with stand-ins; nothing is kept"
    )
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="run later parts after a finding that ends the run",
    )
    parser.add_argument("--as-part", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := [name for name in options.parts if name not in names]:
        parser.error(f"no such part: {', '.join(unknown)}; use {', '.join(names)}")
    parts = [part_named(name) for name in options.parts or names]
    if options.as_part:
        measure_part(parts[0], options.as_part, rehearse=options.rehearse)
        return
    signal.signal(signal.SIGTERM, _stop)
    if not options.rehearse:
        from tests.gpu.machine import why_no_card  # noqa: PLC0415 -- imports torch

        if reason := why_no_card():
            sys.exit(f"{reason}; python -m tests.gpu --rehearse runs the parts on the CPU")
    else:
        print("a rehearsal on the CPU with stand-ins: the figures mean nothing, and are not kept")
    try:
        has_findings = run_parts(parts, options)
    finally:
        if not options.rehearse:
            print(f"\nsend {options.results} and {log_of(options)} to the authors (CITATION.cff)")
    sys.exit(1 if has_findings else 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
