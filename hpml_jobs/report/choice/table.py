"""The table of all measured cells by speed: what an epoch of each takes and costs."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple, Self

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.strategies import Device
from hpml_jobs.report.choice.cost import (
    Candidate,
    Cost,
    Wish,
    cost_of,
    flop_text,
    peak_text,
    tflop_per_s,
)
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.numbers import (
    cost,
    per_second,
    percent,
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
    item_table,
    row_name,
)
from hpml_jobs.results.groups import ConditionGroup

CAPTION = (
    "Seconds of {what}, the longest of all ranks, median over runs. Efficiency: {size} x "
    "{reference} s ({cell}, the fastest of the smallest size) / ({units} x s). Cost: {units} that "
    "are charged x s. Another global batch may need another learning rate and reach another "
    "accuracy."
)

FLOP = ("flop_per_s_per_gpu", "utilization")
JOULES = (
    "J: NVML's energy counters of the cell's own boards, from right before to right after the "
    "epoch; hosts are not in it. A counter advances every 20 to 100 ms."
)


class ChoiceLine(NamedTuple):
    """A measured cell, what an epoch of it takes and costs, and what it is the best in.

    `is_doubtful`: a check is about its time, `is_doubtful_ratio`: or about the reference's.
    """

    strategy: str
    gpus: int
    nodes: int
    treatment: str
    batch: int
    epoch_s: Annotated[float, Column("s", seconds, doubt="is_doubtful")]
    units_per_s: Annotated[Number, Column("{unit}/s", per_second, doubt="is_doubtful")]
    unit: str
    efficiency: Annotated[
        float, Column("effic.{against}", share_text, doubt="is_doubtful_ratio")
    ]
    charged_gpu_s: Annotated[
        float, Column("{seconds}", cost, "{cost}", doubt="is_doubtful")
    ]
    charged_gpu_hours: Annotated[
        float, Column("{hours}", three_digits, "{cost}", doubt="is_doubtful")
    ]
    joules: Annotated[Number, Column("J per epoch", three_digits)]
    flop_per_s_per_gpu: Annotated[
        Number, Column("TFLOP/s per {device}", tflop_per_s, doubt="is_doubtful")
    ]
    utilization: Annotated[Number, Column("% of peak", percent, doubt="is_doubtful")]
    charged_gpus: int
    runs: int
    why: Annotated[str, Column("why", words=True)]
    is_doubtful: bool
    is_doubtful_ratio: bool

    @classmethod
    def of(
        cls, candidate: Candidate, reference: Candidate, cost: Cost, why: str
    ) -> Self:
        """Return the line of a cell with what an epoch of it costs."""
        row = candidate.row
        timing = candidate.timing
        return filled(
            cls,
            candidate,
            timing,
            row,
            cost,
            strategy=row.strategy.value,
            batch=row.batch_per_gpu,
            unit=timing.unit.value,
            charged_gpu_s=candidate.gpu_s,
            charged_gpu_hours=candidate.gpu_hours,
            flop_per_s_per_gpu=cost.flop_per_s,
            runs=len(row.runs),
            why=why,
            is_doubtful_ratio=candidate.is_doubtful or reference.is_doubtful,
        )


def choice_table(
    group: ConditionGroup,
    candidates: Sequence[Candidate],
    wish: Wish,
    asked: Candidate | None,
) -> Table | None:
    """Return the table of all measured cells; None without one."""
    if not candidates:
        return None
    device = group.device
    reference = min(candidates, key=lambda c: (c.row.gpus, c.epoch_s))
    time_s = seconds(reference.epoch_s)
    size = captions.size(reference.row.gpus, device)
    caption = CAPTION.format(
        what=captions.one_work(group.work),
        reference=captions.mark(time_s, is_doubtful=reference.is_doubtful),
        size=reference.row.gpus,
        units=captions.units(device),
        cell=reference.words,
    )
    costs = [cost_of(candidate) for candidate in candidates]
    lines = [
        ChoiceLine.of(cost.candidate, reference, cost, why)
        for cost, why in zip(costs, _whys(candidates, wish, asked), strict=True)
    ]
    has_energy = any(line.joules is not None for line in lines)
    has_flop = device is Device.CUDA or any(cost.peak for cost in costs)
    unknown = (() if has_energy else ("joules",)) + (() if has_flop else FLOP)
    if device is Device.CPU:
        unknown += ("charged_gpu_hours",)
    rows = [candidate.row for candidate in candidates]
    text = TableText(
        "choice",
        "Choice and cost",
        "timed epoch",
        (
            caption,
            JOULES if has_energy else "",
            *((flop_text(group, costs), peak_text(group, costs)) if has_flop else ()),
            captions.runs(group.timed),
        ),
    )
    columns = columns_of(
        ChoiceLine,
        without=unknown,
        device=captions.unit(device),
        unit=reference.timing.unit.value,
        against=f" (against {size})" if reference.row.gpus > 1 else "",
        cost=f"cost per {captions.work_text(group.work)}",
        seconds=f"{captions.unit(device)}-s",
        hours=captions.hours_unit(device),
    )
    items = [
        (row_name(group, row), line) for row, line in zip(rows, lines, strict=True)
    ]
    notes = captions.explained(rows, Affected.TIME)
    return item_table([group], text, items, columns, notes)


def _whys(
    candidates: Sequence[Candidate], wish: Wish, asked: Candidate | None
) -> list[str]:
    """Return what each cell is the best in, and whether it is beyond the budget of a wish."""
    cheapest = min(candidates, key=lambda c: (c.gpu_s, c.epoch_s))
    budget = wish.gpu_hours_of_epoch
    whys = []
    for candidate in candidates:
        roles = {
            "meets your wish": candidate is asked,
            "fastest": candidate is candidates[0],
            "cheapest": candidate is cheapest,
            "over the budget": budget is not None and candidate.gpu_hours > budget,
        }
        whys.append("; ".join(role for role, holds in roles.items() if holds))
    return whys
