"""Figures measured on GPUs: a section of docs/measured.md, and docs/gpu.csv with every figure."""

import csv
import io
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.gpu.catalog import PARTS
from tests.gpu.figures import (
    Expected,
    PartResult,
    Results,
    Verdict,
    findings,
    number_text,
)

DOCS = Path(__file__).parents[2] / "docs"
BEGIN = (
    "<!-- gpu: written by `make docs` from docs/gpu.json and tests/gpu/catalog.py -->\n"
)
END = "<!-- gpu: end -->\n"

METHOD = """\
`make test-gpu` runs all parts, in minutes on an H200
([tests/README.md](../tests/README.md#on-a-gpu)). [gpu.csv](gpu.csv) has every figure with its
expected range, scaled to other cards by peak FLOP/s and memory bandwidth; a figure outside its
range is marked as a finding. `short` is a visit of minutes, with less work. two_gpus and
fsdp_memory need two.
"""

NOT_RUN = """\
**Not yet run on hardware.** The tests execute every part with stand-ins for CUDA's events and
streams; those figures mean nothing and are not kept.
"""


def section(results: Results | None = None) -> str:
    """Return the section of some results, by default of those in docs/gpu.json."""
    results = Results.read() if results is None else results
    return "\n".join([*_status(results), METHOD, *_runs(results)])


def measured_page() -> str:
    """Return docs/measured.md with the section of the results in docs/gpu.json."""
    text = (DOCS / "measured.md").read_text()
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{section()}\n{END}{rest.partition(END)[2]}"


def figures_csv(results: Results | None = None) -> str:
    """Return every figure with its range, what was published, and its value in each series."""
    results = Results.read() if results is None else results
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ("part", "figure", "expected", "basis", "published", *results.series)
    )
    for part in PARTS:
        for figure in part.expected:
            values = [
                _value(figure, results.of(part.name, name)) for name in results.series
            ]
            basis = figure.basis.value if figure.has_range else ""
            row = (
                part.name,
                figure.text,
                figure.range_text,
                basis,
                figure.published,
                *values,
            )
            writer.writerow(row)
    return text.getvalue()


def write() -> None:
    """Write the section and the CSV file, from docs/gpu.json."""
    (DOCS / "gpu.csv").write_text(figures_csv())
    (DOCS / "measured.md").write_text(measured_page())


def _status(results: Results) -> Iterator[str]:
    if not results.parts:
        yield NOT_RUN
        return
    for series in results.series:
        runs = [(part, run) for part in PARTS if (run := results.of(part.name, series))]
        lines = [line for part, run in runs for line in findings(part, run)]
        count = f"{len(lines)} finding" + ("" if len(lines) == 1 else "s")
        left = [part.name for part in PARTS if results.of(part.name, series) is None]
        words = f"**{series}**: {len(runs)} of {len(PARTS)} parts have run, {count}."
        words += f" Not yet run: {', '.join(left)}." if left else ""
        yield textwrap.fill(words, 100) + "\n"


def _runs(results: Results) -> Iterator[str]:
    if not results.parts:
        return
    yield "| series | date (UTC) | torch | CUDA | cuDNN | NCCL | driver | commit | s of each part |"
    yield "|---|---|---|---|---|---|---|---|---|"
    seconds_of = defaultdict[Sequence[str], list[str]](list)
    for run in results.parts:
        about = run.machine
        numbers = (about.torch, about.cuda, about.cudnn, about.nccl, about.driver)
        versions = [version or "–" for version in (*numbers, (about.commit or "")[:9])]
        ended = " (stopped)" if run.failure else ""
        visit = (run.series, run.date[:10], *versions)
        seconds_of[visit].append(f"{run.part} {run.seconds:.0f}{ended}")
    for visit, parts in seconds_of.items():
        yield "| " + " | ".join([*visit, ", ".join(parts)]) + " |"
    yield ""


def _value(expected: Expected, run: PartResult | None) -> str:
    figure = run.figure(expected.key) if run else None
    if run is None or figure is None:
        return ""
    text = "left out" if figure.is_left_out else number_text(figure.value)
    if expected.judge(figure, run.machine.card or "") is Verdict.FINDING:
        text = f"{text} (finding)"
    return f"{text} ({figure.note})" if figure.note else text
