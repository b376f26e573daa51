"""The table of time, throughput and scaling: weak, and strong where the grid has pairs."""

from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple, Self

import msgspec

from hpml_jobs.core.built_in import Unit
from hpml_jobs.core.check_result import Affected
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.numbers import (
    count,
    per_second,
    seconds,
    share_text,
    three_digits,
)
from hpml_jobs.report.frame.table import (
    Column,
    Number,
    Table,
    TableText,
    columns_of,
    filled,
    left_out,
    line_table,
)
from hpml_jobs.results.cells import Place
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Pair, Row, Scaling

SCALING = (
    "{what}; in stall the device waits for a batch{sum}. {unit}/s: {processed} processed, padding "
    "of the sampler included, / time. Step: median of the iterations with a full batch. "
)
TOKENS = "tokens of the samples"
AGAINST = (
    "Speedup: time(g, b) / time(N, b), where g is {size}; effic.: speedup x g / N; weak: "
    "step(g, b) / step(N, b) at the same batch per {unit}; cost/t, against 1 {unit}: 1 / effic. - "
    "1, the cost of N {units} per second of computation on 1."
)
SMALLEST = "the smallest size of the strategy at the batch, 1 {unit} where there is such a cell"
MEASURED = (
    "Time: the longest of all ranks; train + stall = time of the rank with the largest stall in "
    "every run"
)
WINDOW = (
    "Time: seconds of {work} at the rate of the timed window, of the slowest process; train + "
    "stall = time"
)
REPORTED = "As reported by the source: time = train + stall"
MEDIANS = " (medians of several runs need not add up)"


def scaling(group: ConditionGroup) -> Table | None:
    """Return time, throughput and every ratio to the baseline; None without any number."""
    if not group.timed:
        return None
    rows = group.timed
    strong = {pair.parallel.place: pair for pair in group.pairs}
    caption = (
        _how_measured(group) + _against(group),
        _with_units(group, STRONG) if strong else "",
        captions.runs(group.rows),
    )
    text = TableText("scaling", "Scaling", "timed epoch", caption)
    heads = columns_of(
        ScalingLine,
        without=() if strong else STRONG_FIELDS,
        unit=group.a_cell.workload.throughput_unit.value,
        against=captions.against(rows, group.device),
        against_global=captions.against(rows, group.device, "global batch"),
    )
    notes = left_out(group, "", (row for row in group.rows if not row.timing))
    return line_table(group, text, list(_lines(group, strong)), heads, notes)


def _how_measured(group: ConditionGroup) -> str:
    """Return what the times and the throughput are."""
    unit = group.a_cell.workload.throughput_unit
    what = MEASURED if group.origin.has_ranks else REPORTED
    if group.work:
        what = WINDOW.format(work=captions.work_text(group.work))
    return SCALING.format(
        what=what,
        sum=MEDIANS if any(len(row.runs) > 1 for row in group.timed) else "",
        unit=unit.value,
        processed=TOKENS if unit is Unit.TOKENS else "samples",
    )


def _against(group: ConditionGroup) -> str:
    """Return how the ratios are defined."""
    numbers = captions.reference_sizes(group.timed)
    size = str(numbers[0]) if len(numbers) == 1 else SMALLEST
    return _with_units(group, AGAINST.replace("{size}", size))


def _with_units(group: ConditionGroup, text: str) -> str:
    return text.format(
        unit=captions.unit(group.device),
        units=captions.units(group.device),
    )


class ScalingLine(NamedTuple):
    """Seconds, throughput and ratios of a row.

    `reference_gpus` is what the ratios at the same batch are against, `strong_reference_gpus` those
    at the same global batch.
    """

    epoch_s: Annotated[float, Column("time", seconds, "seconds")]
    train_s: Annotated[Number, Column("train", seconds, "seconds", doubt="doubts_s")]
    stall_s: Annotated[Number, Column("stall", seconds, "seconds")]
    step_s: Annotated[Number, Column("step", seconds, "seconds", doubt="doubts_s")]
    units_per_s: Annotated[Number, Column("{unit}/s", per_second, doubt="doubts_s")]
    unit: str
    speedup: Annotated[
        Number, Column("speedup", three_digits, "{against}", doubt="is_doubtful")
    ]
    efficiency: Annotated[
        Number, Column("effic.", share_text, "{against}", doubt="is_doubtful")
    ]
    weak_efficiency: Annotated[
        Number, Column("weak", share_text, "{against}", doubt="is_doubtful")
    ]
    cost_per_compute: Annotated[
        Number, Column("cost/t", three_digits, "{against}", doubt="is_doubtful")
    ]
    reference_gpus: int | None
    global_batch: int
    strong_speedup: Annotated[
        Number,
        Column("speedup", three_digits, "{against_global}", doubt="doubts_strong"),
    ]
    strong_efficiency: Annotated[
        Number, Column("effic.", share_text, "{against_global}", doubt="doubts_strong")
    ]
    karp_flatt: Annotated[
        Number,
        Column("Karp-Flatt", three_digits, "{against_global}", doubt="doubts_strong"),
    ]
    strong_reference_gpus: int | None
    strong_reference_s: Number
    doubts_s: bool
    is_doubtful: bool
    doubts_strong: bool


STRONG_FIELDS = (
    *("global_batch", "strong_speedup", "strong_efficiency", "karp_flatt"),
    *("strong_reference_gpus", "strong_reference_s"),
)


def _lines(
    group: ConditionGroup, strong: Mapping[Place, Pair]
) -> Iterator[tuple[Row, ScalingLine]]:
    for row, timing in [(row, row.timing) for row in group.timed if row.timing]:
        pair = strong.get(row.place)
        line = filled(
            ScalingLine,
            timing,
            row,
            **_ratios(row),
            **_strong_ratios(pair),
            unit=timing.unit.value,
            doubts_s=Affected.TIME in row.doubts,
            is_doubtful=row.is_ratio_doubtful,
            doubts_strong=pair.is_doubtful if pair else row.is_ratio_doubtful,
        )
        yield row, line


def _ratios(row: Row) -> dict[str, object]:
    """Return the ratios at the same batch; None without a reference."""
    if row.scaling is None or row.reference is None:
        return dict.fromkeys((*Scaling.__struct_fields__, "reference_gpus"))
    ratios = msgspec.structs.asdict(row.scaling)
    return ratios | {"reference_gpus": row.reference.gpus}


def _strong_ratios(pair: Pair | None) -> dict[str, object]:
    """Return the ratios at the same global batch; None without a pair."""
    if pair is None:
        return dict.fromkeys(STRONG_FIELDS[1:])
    return {
        "strong_speedup": pair.speedup,
        "strong_efficiency": pair.efficiency,
        "karp_flatt": pair.serial_fraction,
        "strong_reference_gpus": pair.reference.gpus,
        "strong_reference_s": pair.reference.epoch_s,
    }


STRONG = (
    "Same global batch G on g {units} (1, or the smallest size of the strategy) and on N (strong "
    "scaling): speedup = time(g, G/g) / time(N, G/N), for every pair in the grid. Karp-Flatt: "
    "the serial fraction that explains it by Amdahl's law, against 1 {unit} and if it is between "
    "0 and 1; exchange of gradients counts as serial, too."
)


STRONG_CAPTION = (
    "The same global batch on more {units}. Time: seconds of one epoch, the longest of all ranks. "
    "Speedup: against the smallest size. Efficiency: speedup / ideal."
)


class StrongLine(NamedTuple):
    """A size of a global batch; its speedup and efficiency are 1 for the smallest one."""

    global_batch: Annotated[int, Column("global batch", count)]
    time_s: Annotated[float, Column("Time(s)", seconds)]
    speedup: Annotated[float, Column("Speedup", three_digits)]
    efficiency: Annotated[float, Column("efficiency", share_text)]

    @classmethod
    def of_reference(cls, pair: Pair) -> Self:
        """Return the line of the smallest size."""
        return cls(pair.parallel.global_batch, pair.reference.epoch_s, 1.0, 1.0)

    @classmethod
    def of(cls, pair: Pair) -> Self:
        """Return the line of a larger size."""
        return cls(
            pair.parallel.global_batch,
            pair.parallel.epoch_s,
            pair.speedup,
            pair.efficiency,
        )


def strong_table(group: ConditionGroup) -> Table | None:
    """Return times and speedups by global batch; None where Table 1 has a speedup, or none is."""
    if any(row.is_compared for row in group.timed):
        return None
    lines = {}
    for pair in group.pairs:
        lines[pair.reference.place] = (pair.reference, StrongLine.of_reference(pair))
        lines[pair.parallel.place] = (pair.parallel, StrongLine.of(pair))
    if not lines:
        return None
    caption = (
        STRONG_CAPTION.format(units=captions.units(group.device)),
        captions.runs(group.timed),
    )
    text = TableText("strong", "Strong scaling: time and speedup", "", caption)
    ordered = sorted(
        lines.values(), key=lambda item: (item[1].global_batch, item[0].gpus)
    )
    return line_table(group, text, ordered, columns_of(StrongLine))
