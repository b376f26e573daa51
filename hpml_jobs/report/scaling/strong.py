"""Full table of strong scaling, where the grid has pairs for it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.strategies import Baseline
from hpml_jobs.report.frame import captions, marks
from hpml_jobs.report.frame.builder import (
    Column,
    Columns,
    TableText,
    column,
    item_table,
    place_columns,
)
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import ratio, seconds
from hpml_jobs.report.frame.references import Pair, pairs
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.frame.table import Line, Table

STRONG = (
    "The same global batch G on {reference} and on N {units}: speedup = {time}({g}, G{per_g}) / "
    "{time}(N, G/N){efficiency}, for every pair in the grid. Table 1 keeps the batch per {unit} "
    "(weak scaling), so its global batch grows with N. Karp-Flatt: the serial fraction that "
    "explains the speedup by Amdahl's law; the exchange of a ring looks like one."
)
NO_FRACTION = "Karp-Flatt is no fraction ({value}): {reason}"
NO_SINGLE = "Karp-Flatt: not defined without the time of 1 {unit}"


def strong(group: ConditionGroup) -> Table | None:
    """Return the table of strong scaling; None if the grid has no pair."""
    shown_pairs = pairs(group)
    if not shown_pairs:
        return None
    unit = captions.unit(group.device)
    runs = captions.runs([pair.parallel for pair in shown_pairs])
    rows = [row for pair in shown_pairs for row in (pair.reference, pair.parallel)]
    table = item_table(
        [group],
        TableText("strong", "Strong scaling", "timed epoch", (_caption(group), runs)),
        ((captions.full_label(pair.parallel.setup, group.device), pair) for pair in shown_pairs),
        _heads(group, shown_pairs),
        [*marks.explained(group, rows, Affected.TIME), *_no_fractions(group, shown_pairs)],
    )
    heads = [block.head for block in table.blocks]
    at = tuple(at for at, head in enumerate(heads) if head.endswith(f"-{unit}, s"))
    lines = (
        _marked(group, line, dict(zip(at, (pair.reference, pair.parallel), strict=True)))
        for line, pair in zip(table.lines, shown_pairs, strict=True)
    )
    return msgspec.structs.replace(table, lines=tuple(lines))


def _marked(group: ConditionGroup, line: Line, row_at: Mapping[int, Row]) -> Line:
    """Return a line with the mark at the time of each row that a check makes doubtful."""
    texts = list(line.texts)
    for at, row in row_at.items():
        (texts[at],) = marks.marked(group, row, (texts[at],), Affected.TIME)
    return msgspec.structs.replace(line, texts=tuple(texts))


def _caption(group: ConditionGroup) -> str:
    is_single = group.baseline is Baseline.SINGLE
    return STRONG.format(
        time=captions.time_word(group.work),
        reference="1" if is_single else "the smallest size g of the strategy",
        g="1" if is_single else "g",
        per_g="" if is_single else "/g",
        efficiency="" if is_single else ", efficiency = speedup x g / N",
        unit=captions.unit(group.device),
        units=captions.units(group.device),
    )


def _no_fractions(group: ConditionGroup, shown_pairs: Iterable[Pair]) -> Iterator[str]:
    """Yield a note for each pair whose Karp-Flatt value is no fraction or not defined."""
    unit, without_single = captions.unit(group.device), False
    for pair in shown_pairs:
        if pair.karp_flatt is None:
            without_single = True
        elif pair.serial_fraction is None:
            slower = f"slower than one {unit}"
            reason = slower if pair.karp_flatt >= 1 else "as fast as ideal, or faster"
            text = NO_FRACTION.format(value=ratio(pair.karp_flatt), reason=reason)
            label = captions.full_label(pair.parallel.setup, group.device)
            yield f"{label} at global batch {pair.global_batch}: {text}"
    if without_single:
        yield NO_SINGLE.format(unit=unit)


def _heads(group: ConditionGroup, shown_pairs: Sequence[Pair]) -> tuple[Columns[Pair], ...]:
    """Return the columns; against other sizes than one GPU, the reference has its own."""
    unit = captions.unit(group.device)
    sizes = {pair.reference.gpus for pair in shown_pairs}
    size = f"{sizes.pop()}" if len(sizes) == 1 else "g"
    is_single = group.baseline is Baseline.SINGLE

    def is_doubtful(pair: Pair) -> bool:
        return group.doubts_ratio(pair.parallel, pair.reference)

    ratios: tuple[Column[Pair], ...] = (
        column("strong_speedup", "speedup", lambda p: p.speedup, ratio),
        column("strong_efficiency", "efficiency", lambda p: p.efficiency, ratio),
        column("karp_flatt", "Karp-Flatt", lambda p: p.serial_fraction, ratio),
    )
    return (
        Columns("", place_columns(lambda pair: pair.parallel.setup)),
        Columns("global batch", (column("global_batch", "", lambda p: p.global_batch),)),
        Columns(f"batch per {unit}", (column("batch", "", lambda p: p.parallel.batch_per_gpu),)),
        Columns(
            "g" if size == "g" else "", (column("reference_gpus", "", lambda p: p.reference.gpus),)
        ),
        Columns(
            f"{size}-{unit}, s",
            (
                column(
                    "one_epoch_s" if is_single else "reference_epoch_s",
                    "",
                    lambda p: p.reference_s,
                    seconds,
                ),
            ),
        ),
        Columns(f"N-{unit}, s", (column("epoch_s", "", lambda p: p.parallel_s, seconds),)),
        *(Columns(c.head, (c._replace(head="").marked_if(is_doubtful),)) for c in ratios),
    )
