"""Measure on a GPU: `python -m tests.gpu [PART...]`; write gpu.json, gpu.csv, measured.md in docs/.

Parts run by value, so that a short visit measures the most important figures. A finding that makes
what later parts measure useless ends the run. Each part is a process of its own with a time limit:
parts in this process would hold memory of the card that the cells of other parts are refused for.
Figures are kept as they come: a part that is stopped, at its limit, by a signal or with the
machine, keeps those it has measured.
"""

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from types import FrameType
from typing import NoReturn

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import counted
from hpml_jobs.study.files import writing
from tests.gpu import page
from tests.gpu.catalog import PARTS, part_named
from tests.gpu.figures import (
    RESULTS,
    Part,
    PartResult,
    Results,
    findings,
    gate_finding,
    left_out_lines,
    number_text,
)
from tests.gpu.part_run import INTERRUPTED, Visit, check_archive, measure_part, run_part

RESERVE_S = 20.0
"""Of a budget, kept for the end: a part is ended, and the results are written."""


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
        note = f"  ({figure.note[:100]})" if figure and figure.note else ""
        print(f"  {expected.text:62} {value:>10}  expected: {range_text}{note}")
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
        with writing(page.DOCS):
            page.write()


def log_of(options: argparse.Namespace) -> Path:
    """Return the file that has the output of the parts."""
    return Path(options.results).with_suffix(".log")


def run_parts(
    parts: Sequence[Part], options: argparse.Namespace, visit: Visit
) -> list[str]:
    """Run the parts that fit, up to a finding that makes the rest useless; return all findings."""
    found: list[str] = []
    for part in parts:
        left_s, least_s, limit_s = (
            visit.left_s(),
            visit.least_s(part),
            visit.limit_s(part),
        )
        if left_s < least_s:
            print(
                f"\n{part.name}: left out, {left_s:.0f} s are left, and it needs {least_s:.0f}"
            )
            continue
        print(
            f"\n{part.name}: at most {min(limit_s, left_s) / 60:.3g} minutes",
            flush=True,
        )
        result = run_part(
            part,
            log_of(options),
            visit=visit,
            on_news=lambda result: add(result, options.results),
        )
        if visit.is_rehearsal:
            has_failed = result.failure and not result.is_interrupted
            lines = [f"{part.name}: {result.failure}"] if has_failed else []
        else:
            lines = findings(part, result)
        print_part(part, result, lines)
        found += lines
        if not visit.is_rehearsal:
            keep(result, options.results)
        if result.failure == INTERRUPTED:
            raise KeyboardInterrupt
        if visit.is_rehearsal:
            continue
        if (reason := gate_finding(part, result)) and not options.keep_going:
            print(
                f"\nended, since later parts would measure nothing that can be used: {reason}"
            )
            break
    return found


def refuse(reason: str) -> NoReturn:
    """End with the reason in one line, exit code 2."""
    sys.stderr.write(f"python -m tests.gpu: {reason}\n")
    sys.exit(2)


def seconds(text: str) -> float:
    """Return a number of seconds.

    Raises:
        argparse.ArgumentTypeError: it is not one.
    """
    with contextlib.suppress(ValueError):
        if 0 < (value := float(text)) < inf:
            return value
    raise argparse.ArgumentTypeError(
        f"{text!r} is no number of seconds, for example 520"
    )


def check_budget(parts: Sequence[Part], budget_s: float, visit: Visit) -> None:
    """Refuse a budget into which no part fits."""
    shortest = min(parts, key=visit.least_s)
    needed_s = visit.least_s(shortest) + RESERVE_S
    if budget_s < needed_s:
        refuse(
            f"--budget {budget_s:g}: no part fits; {shortest.name} needs {needed_s:.0f} s with the "
            f"{RESERVE_S:.0f} s for the end: use --budget {needed_s:.0f} or more"
        )


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """End with an error of the command line."""
        refuse(message)


def parser_of(names: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(names)}; default: all"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of results")
    parser.add_argument(
        "--cells",
        type=Path,
        metavar="FILE.tar",
        help="add records, logs and traces of the cells to this archive (default: none are kept)",
    )
    parser.add_argument(
        "--budget",
        type=seconds,
        metavar="SECONDS",
        help="end within this time: leave out the parts that do not fit (default: no limit)",
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help="less work in each part, for a visit of minutes",
    )
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="on the CPU with stand-ins; nothing is kept",
    )
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="run later parts after a finding that ends the run",
    )
    parser.add_argument("--as-part", type=Path, help=argparse.SUPPRESS)
    return parser


def check_machine(results: Path) -> None:
    """Refuse a machine without a free GPU, and results that cannot be kept."""
    from tests.gpu.machine import why_in_use, why_no_card  # noqa: PLC0415 -- imports torch

    if reason := why_no_card():
        sys.exit(f"{reason}; python -m tests.gpu --rehearse runs the parts on the CPU")
    if reason := why_in_use():
        sys.exit(reason)
    Results.read(results).write(results)


def make_visit(
    parts: Sequence[Part], options: argparse.Namespace, visit: Visit
) -> list[str]:
    """Run the parts on a machine that can; return all findings, which are printed last."""
    if options.cells:
        check_archive(options.cells)
    if options.rehearse:
        print(
            "a rehearsal on the CPU with stand-ins: the figures mean nothing, and are not kept"
        )
        return run_parts(parts, options, visit)
    check_machine(options.results)
    try:
        found = run_parts(parts, options, visit)
        print(f"\n{counted(len(found), 'finding')}", *found, sep="\n")
    finally:
        print(
            f"\nsend {options.results} and {log_of(options)} to the authors (CITATION.cff)"
        )
    return found


def main() -> None:
    """Run the parts; exit with 1 if one failed or gave a finding, 2 for what cannot be run."""
    begin_s = time.monotonic()
    names = [part.name for part in PARTS]
    options = parser_of(names).parse_args()
    if unknown := [name for name in options.parts if name not in names]:
        refuse(f"no such part: {', '.join(unknown)}; use {', '.join(names)}")
    parts = [part_named(name) for name in options.parts or names]
    if options.as_part:
        measure_part(
            parts[0], options.as_part, rehearse=options.rehearse, is_short=options.short
        )
        return
    signal.signal(signal.SIGTERM, _stop)
    end_s = begin_s + options.budget - RESERVE_S if options.budget else inf
    visit = Visit(options.rehearse, options.short, end_s, options.cells)
    if options.budget:
        check_budget(parts, options.budget, visit)
    try:
        found = make_visit(parts, options, visit)
    except HpmlError as error:
        refuse(f"{error}; name another file by --results (or --cells)")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
