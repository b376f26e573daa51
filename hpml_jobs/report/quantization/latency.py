"""Full table of the time of a batch on the CPU, before and after quantization."""

from collections.abc import Iterator
from statistics import median
from typing import Annotated, NamedTuple

from hpml_jobs.report.frame.builder import Number, Shown, TableText, columns_of, item_table
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import count, milliseconds, ratio
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.quantization.table import Runs, quantized

LATENCY = (
    "Milliseconds of a batch on the CPU with one thread: median, 10th and 90th percentile; "
    "medians over runs. Ratio: to fp32 at the same batch; below 1 is faster."
)


class LatencyLine(NamedTuple):
    """One way of computing a batch of one size: seconds, medians over runs."""

    network: str
    what: str
    batch: Annotated[int, Shown("batch", count)]
    median_s: Annotated[float, Shown("median", milliseconds, "ms per batch")]
    p10_s: Annotated[float, Shown("p10", milliseconds, "ms per batch")]
    p90_s: Annotated[float, Shown("p90", milliseconds, "ms per batch")]
    of_fp32: Annotated[Number, Shown("ratio to fp32", ratio)]


def latency(group: ConditionGroup) -> Table | None:
    """Return the time of a batch with each implementation; None if nothing was timed."""
    lines = [line for runs in quantized([group]) for line in _lines(runs)]
    if not lines:
        return None
    text = TableText("latency", "Latency on the CPU", "", (LATENCY,))
    items = [(f"{line.network} {line.what}", line) for line in lines]
    return item_table([group], text, items, columns_of(LatencyLine))


def _lines(runs: Runs) -> Iterator[LatencyLine]:
    timings = [timing for run in runs.quantized for timing in run.latencies]
    for what, batch in dict.fromkeys((timing.what, timing.batch) for timing in timings):
        of_runs = [timing for timing in timings if (timing.what, timing.batch) == (what, batch)]
        fp32_s = [o.median_s for o in timings if (o.what, o.batch) == ("fp32", batch)]
        median_s = median(timing.median_s for timing in of_runs)
        yield LatencyLine(
            network=runs.name,
            what=what,
            batch=batch,
            median_s=median_s,
            p10_s=median(timing.p10_s for timing in of_runs),
            p90_s=median(timing.p90_s for timing in of_runs),
            of_fp32=median_s / median(fp32_s) if fp32_s else None,
        )
