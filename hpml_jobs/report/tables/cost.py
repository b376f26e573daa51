"""Full table of the cost of an epoch: GPU-hours, joules, and the FLOP/s reached for them."""

from collections.abc import Callable

from hpml_jobs.report.merge.choice import Charged
from hpml_jobs.report.merge.cost import Cost, cost_of
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Place, Row
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import (
    Column,
    Columns,
    TableText,
    column,
    left_out,
    rest,
    row_table,
)
from hpml_jobs.report.text import captions
from hpml_jobs.report.text import choice as choice_words
from hpml_jobs.report.text import cost as words
from hpml_jobs.report.text.numbers import percent, significant

LABEL = "cost"

CHARGED = (
    "{hours}: {units} that are charged x seconds of {what} / 3600. {names}: those that are "
    "processed, padding included."
)
JOULES = (
    "Joules: NVML's energy counters of the cell's own boards, from right before to right after the "
    "epoch; hosts are not in it. A counter advances every 20 to 100 ms."
)


def cost(group: ConditionGroup, charged: Charged) -> Table | None:
    """Return what an epoch of every row costs; None without a time."""
    by_place = {
        row.place: made for row in group.timed if (made := cost_of(group, row, charged(row.setup)))
    }
    if not by_place:
        return None
    costs, device = list(by_place.values()), group.device
    caption = (
        CHARGED.format(
            hours=choice_words.hours_unit(device),
            units=captions.units(device),
            what=captions.an_epoch(group.work),
            names=group.a_cell.workload.throughput_unit.value.capitalize(),
        ),
        *([JOULES] if any(made.joules is not None for made in costs) else []),
        words.flop_text(group, costs),
        words.peak_text(group, costs),
        words.clocks_text(group),
        captions.runs(group.timed),
    )
    text = TableText(LABEL, "Cost", "E1", tuple(line for line in caption if line), on_screen=False)
    notes = [
        *words.published_notes(group, costs),
        *left_out(group, "no time", rest(group.rows, group.timed)),
    ]
    return row_table(group, text, group.timed, _heads(group, by_place), notes)


def _heads(group: ConditionGroup, by_place: dict[Place, Cost]) -> tuple[Columns[Row], ...]:
    def figure(
        name: str,
        value: Callable[[Cost], float | None],
        text: Callable[[float], str] = _three_digits,
        head: str = "",
    ) -> Column[Row]:
        return column(name, head, lambda row: value(by_place[row.place]), text)

    device, thousand = group.device, f"1,000 {group.a_cell.workload.throughput_unit.value}"
    per_work = f"per {captions.work_text(group.work)}"
    return (
        Columns("", (figure("charged_gpus", lambda c: c.charged_gpus),)),
        Columns(
            choice_words.hours_unit(device),
            (figure("charged_gpu_hours", lambda c: c.gpu_hours, head=per_work),),
        ),
        Columns(
            choice_words.cost_unit(device),
            (
                figure(
                    "charged_gpu_s_per_1000_units",
                    lambda c: c.timing.per_thousand_units(c.gpu_s),
                    head=thousand,
                ),
            ),
        ),
        Columns(
            "J",
            (
                figure("joules", lambda c: c.joules, head=per_work),
                figure(
                    "joules_per_1000_units",
                    lambda c: c.timing.per_thousand_units(c.joules),
                    head=thousand,
                ),
            ),
        ),
        Columns(
            f"TFLOP/s per {captions.unit(device)}",
            (figure("flop_per_s_per_gpu", lambda c: c.flop_per_s, words.tflop_per_s),),
        ),
        Columns("% of peak", (figure("utilization", lambda c: c.utilization, percent),)),
        Columns(
            "",
            (
                figure(
                    "charged_gpu_s_per_1000_samples",
                    lambda c: c.timing.per_thousand_samples(c.gpu_s),
                ),
                figure(
                    "joules_per_1000_samples", lambda c: c.timing.per_thousand_samples(c.joules)
                ),
                column("unit", "", lambda row: by_place[row.place].timing.unit.value),
                figure("train_flop_per_s_per_gpu", lambda c: c.train_flop_per_s),
                figure("flop_per_sample", lambda c: c.flop.figure),
                figure("counted_flop_per_sample", lambda c: c.flop.counted),
                figure("formula_flop_per_sample", lambda c: c.flop.by_formula),
                figure("peak_flop_per_s", lambda c: c.peak.flop_per_s if c.peak else None),
                column("precision", "", lambda row: _precision(by_place[row.place])),
            ),
        ),
    )


def _precision(made: Cost) -> str | None:
    return made.peak.precision if made.peak else None


def _three_digits(value: float) -> str:
    return significant(value, 3)
