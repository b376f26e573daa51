"""Full tables of time and scaling, and of strong scaling where the grid has pairs for it."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from hpml_jobs.checks.result import Affected
from hpml_jobs.core import formulas
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.table import Line, Table
from hpml_jobs.report.tables.builder import (
    Columns,
    TableText,
    column,
    item_table,
    left_out,
    place_columns,
    row_table,
)
from hpml_jobs.report.tables.lab import without_train
from hpml_jobs.report.text import captions, marks
from hpml_jobs.report.text.numbers import count, ratio, seconds

SCALING = (
    "{what}; in stall the device waits for a batch{sum}. {samples}/s: samples processed, padding "
    "of the sampler included, / epoch. Step: median of the iterations with a full batch. Speedup: "
    "epoch(1, b) / epoch(N, b); effic.: speedup / N; weak: step(1, b) / step(N, b) at the same "
    "batch per {unit}; cost/t: 1 / effic. - 1, the cost of N {units} per second of computation on "
    "1."
)
MEASURED = (
    "E1: epoch is the longest of all ranks; train + stall = epoch of the rank with the largest "
    "stall in every run"
)
REPORTED = "As reported by the source: epoch = train + stall"
MEDIANS = " (medians of several runs need not add up)"
STRONG = (
    "The same global batch G on 1 and on N {units}: speedup = epoch(1, G) / epoch(N, G/N), for "
    "every pair in the grid. Table 1 keeps the batch per {unit} (weak scaling), so its global "
    "batch grows with N. Karp-Flatt: the serial fraction that explains the speedup by Amdahl's law."
)
NO_FRACTION = "Karp-Flatt is no fraction ({value}): {reason}"
NO_STEP = "weak: the duration of an iteration is not reported"
ONE_RUN = "single run each: strategies at the same place are not comparable; use repeats=6"


def scaling(group: ConditionGroup) -> Table | None:
    """Return time, throughput and every ratio to the baseline; None without any number."""
    if not group.timed:
        return None
    missing = left_out(group, "", (row for row in group.rows if not row.timing))
    several = strategies_meet(group) and all(len(row.runs) == 1 for row in group.timed)
    unit = captions.unit(group.device)
    what = REPORTED if group.imported else MEASURED
    several_runs = any(len(row.runs) > 1 for row in group.timed)
    caption = SCALING.format(
        what=what,
        sum=MEDIANS if several_runs else "",
        unit=unit,
        units=captions.units(group.device),
        samples=group.a_cell.workload.samples_name,
    )
    text = TableText("scaling", "Scaling", "E1", (caption, captions.runs(group.rows)))
    no_step = any(row.timing and row.timing.step_s is None for row in group.timed)
    notes = [
        *without_train(group.timed),
        *([NO_STEP] if no_step else []),
        *missing,
        *([ONE_RUN] if several else []),
    ]
    return row_table(group, text, group.timed, _heads(group), notes)


def _heads(group: ConditionGroup) -> tuple[Columns[Row], ...]:
    """Return the columns; the throughput has the name of the group's samples."""
    throughput = f"{group.a_cell.workload.samples_name}/s"
    return tuple(
        head._replace(head=throughput) if head.head == "images/s" else head for head in _HEADS
    )


def strategies_meet(group: ConditionGroup) -> bool:
    """Return whether two strategies were measured at the same place."""
    places = [
        (e.gpus, e.nodes, e.treatment, e.batch_per_gpu) for e in group.timed if not e.is_baseline
    ]
    return len(set(places)) < len(places)


def _images_per_s(row: Row) -> float | None:
    timing = row.timing
    if timing is None or timing.samples is None:
        return None
    return formulas.images_per_s(timing.samples, timing.epoch_s)


_HEADS: tuple[Columns[Row], ...] = (
    Columns(
        "seconds",
        (
            column(
                "epoch_s", "epoch", lambda row: row.timing.epoch_s if row.timing else None, seconds
            ),
            column(
                "train_s", "train", lambda row: row.timing.train_s if row.timing else None, seconds
            ),
            column(
                "stall_s", "stall", lambda row: row.timing.stall_s if row.timing else None, seconds
            ),
            column(
                "step_s", "step", lambda row: row.timing.step_s if row.timing else None, seconds
            ),
        ),
    ),
    Columns(
        "images/s",
        (
            column(
                "images_per_s",
                "",
                _images_per_s,
                lambda value: count(round(value)),
            ),
        ),
    ),
    Columns(
        "against 1, same batch",
        (
            column("speedup", "speedup", lambda row: row.speedup, ratio),
            column(
                "efficiency",
                "effic.",
                lambda row: row.scaling.efficiency if row.scaling else None,
                ratio,
            ),
            column(
                "weak_efficiency",
                "weak",
                lambda row: row.scaling.weak_efficiency if row.scaling else None,
                ratio,
            ),
            column(
                "cost_per_compute",
                "cost/t",
                lambda row: row.scaling.cost_per_compute if row.scaling else None,
                ratio,
            ),
        ),
    ),
)


class Pair(NamedTuple):
    """The same global batch on one GPU and on more."""

    baseline: Row
    parallel: Row
    baseline_s: float
    parallel_s: float

    @property
    def speedup(self) -> float:
        """strong(N; G) = epoch_s(1, G) / epoch_s(N, G / N)."""
        return formulas.speedup(self.baseline_s, self.parallel_s)

    @property
    def karp_flatt(self) -> float:
        """The serial fraction by Karp and Flatt; it may be outside (0, 1)."""
        return formulas.karp_flatt(self.speedup, self.parallel.gpus)

    @property
    def serial_fraction(self) -> float | None:
        """The same; None where it is no fraction."""
        return self.karp_flatt if 0 < self.karp_flatt < 1 else None


def pairs(group: ConditionGroup) -> list[Pair]:
    """Return every pair with the same global batch in the grid."""
    same_batch = []
    for row in group.timed:
        baseline = group.baseline(row.gpus * row.batch_per_gpu)
        if row.gpus > 1 and baseline and baseline.timing and row.timing:
            same_batch.append(Pair(baseline, row, baseline.timing.epoch_s, row.timing.epoch_s))
    return same_batch


def strong(group: ConditionGroup) -> Table | None:
    """Return the table of strong scaling; None if the grid has no pair."""
    shown_pairs = pairs(group)
    if not shown_pairs:
        return None
    unit = captions.unit(group.device)
    caption = STRONG.format(unit=unit, units=captions.units(group.device))
    runs = captions.runs([pair.parallel for pair in shown_pairs])
    rows = [row for pair in shown_pairs for row in (pair.baseline, pair.parallel)]
    table = item_table(
        [group],
        TableText("strong", "Strong scaling", "E1", (caption, runs)),
        ((captions.full_label(pair.parallel.setup, group.device), pair) for pair in shown_pairs),
        _strong_heads(unit),
        [*marks.explained(group, rows, Affected.TIME), *_no_fractions(group, shown_pairs)],
    )
    heads = [block.head for block in table.blocks]
    at = heads.index(f"1-{unit}, s"), heads.index(f"N-{unit}, s")
    lines = (
        _marked(group, line, dict(zip(at, (pair.baseline, pair.parallel), strict=True)))
        for line, pair in zip(table.lines, shown_pairs, strict=True)
    )
    return msgspec.structs.replace(table, lines=tuple(lines))


def _marked(group: ConditionGroup, line: Line, row_at: Mapping[int, Row]) -> Line:
    """Return a line with the mark at the time of each row that a check makes doubtful."""
    texts = list(line.texts)
    for at, row in row_at.items():
        (texts[at],) = marks.marked(group, row, (texts[at],), Affected.TIME)
    return msgspec.structs.replace(line, texts=tuple(texts))


def _no_fractions(group: ConditionGroup, shown_pairs: Iterable[Pair]) -> list[str]:
    """Return a note for each pair whose Karp-Flatt value is no fraction."""
    lines = []
    for pair in shown_pairs:
        if pair.serial_fraction is None:
            slower = f"slower than one {captions.unit(group.device)}"
            reason = slower if pair.karp_flatt >= 1 else "as fast as ideal, or faster"
            text = NO_FRACTION.format(value=ratio(pair.karp_flatt), reason=reason)
            label = captions.full_label(pair.parallel.setup, group.device)
            lines.append(f"{label} at global batch {pair.baseline.batch_per_gpu}: {text}")
    return lines


def _strong_heads(unit: str) -> tuple[Columns[Pair], ...]:
    return (
        Columns("", place_columns(lambda pair: pair.parallel.setup)),
        Columns("global batch", (column("global_batch", "", lambda p: p.baseline.batch_per_gpu),)),
        Columns(f"batch per {unit}", (column("batch", "", lambda p: p.parallel.batch_per_gpu),)),
        Columns(f"1-{unit}, s", (column("one_epoch_s", "", lambda p: p.baseline_s, seconds),)),
        Columns(f"N-{unit}, s", (column("epoch_s", "", lambda p: p.parallel_s, seconds),)),
        Columns("speedup", (column("strong_speedup", "", lambda p: p.speedup, ratio),)),
        Columns("efficiency", (column("strong_efficiency", "", _efficiency, ratio),)),
        Columns("Karp-Flatt", (column("karp_flatt", "", lambda p: p.serial_fraction, ratio),)),
    )


def _efficiency(pair: Pair) -> float:
    return formulas.efficiency(pair.speedup, pair.parallel.gpus)
