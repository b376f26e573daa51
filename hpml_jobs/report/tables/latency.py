"""Full table of the time of a batch on the CPU, before and after quantization."""

from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

from hpml_jobs.core.quantization import Latency
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import Columns, TableText, column, item_table
from hpml_jobs.report.tables.quantization import Runs, quantized
from hpml_jobs.report.text.numbers import count, milliseconds, ratio

LATENCY = (
    "Milliseconds of a batch on the CPU with one thread: median, 10th and 90th percentile; "
    "medians over runs. Ratio: to fp32 at the same batch; below 1 is faster."
)


class Implementation(NamedTuple):
    """One way of computing a batch of one size, its figures in all runs, and fp32's medians."""

    network: str
    figures: list[Latency]
    fp32_s: list[float]

    def median_of(self, figure: Callable[[Latency], float]) -> float:
        """Return a figure's median over runs."""
        return float(median(map(figure, self.figures)))

    @property
    def of_fp32(self) -> float | None:
        """The ratio to fp32 at the same batch."""
        return (
            self.median_of(lambda figures: figures.median_s) / median(self.fp32_s)
            if self.fp32_s
            else None
        )


def latency(group: ConditionGroup) -> Table | None:
    """Return the time of a batch with each implementation; None if nothing was timed."""
    implementations = [
        implementation for runs in quantized([group]) for implementation in _timed(runs)
    ]
    if not implementations:
        return None

    def name(implementation: Implementation) -> str:
        return f"{implementation.network} {implementation.figures[0].what}"

    text = TableText("latency", "Latency on the CPU", "", (LATENCY,))
    return item_table(
        [group], text, ((name(item), item) for item in implementations), _LATENCY_HEADS
    )


def _timed(runs: Runs) -> Iterator[Implementation]:
    timings = [timing for run in runs.quantized for timing in run.latencies]
    for what, batch in dict.fromkeys((timing.what, timing.batch) for timing in timings):
        figures = [timing for timing in timings if (timing.what, timing.batch) == (what, batch)]
        fp32 = [o.median_s for o in timings if (o.what, o.batch) == ("fp32", batch)]
        yield Implementation(runs.name, figures, fp32)


_LATENCY_HEADS: tuple[Columns[Implementation], ...] = (
    Columns(
        "",
        (
            column("network", "", lambda item: item.network),
            column("what", "", lambda item: item.figures[0].what),
        ),
    ),
    Columns("batch", (column("batch", "", lambda item: item.figures[0].batch, count),)),
    Columns(
        "ms per batch",
        (
            column(
                "median_s",
                "median",
                lambda item: item.median_of(lambda figures: figures.median_s),
                milliseconds,
            ),
            column(
                "p10_s",
                "p10",
                lambda item: item.median_of(lambda figures: figures.p10_s),
                milliseconds,
            ),
            column(
                "p90_s",
                "p90",
                lambda item: item.median_of(lambda figures: figures.p90_s),
                milliseconds,
            ),
        ),
    ),
    Columns("ratio to fp32", (column("of_fp32", "", lambda item: item.of_fp32, ratio),)),
)
