"""Full table of communication in the instrumented epoch: every answer, beside each other."""

from hpml_jobs.core import formulas
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import (
    UNMEASURED,
    About,
    Column,
    Columns,
    left_out,
    of_values,
    places,
    rest,
    table,
)
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.numbers import percent, seconds

COMMUNICATION = (
    "E2, on the rank with the longest epoch. Total: seconds in which any collective is under way. "
    "Exposed: hidden behind nothing; forward: the part of it inside forward (ddp: buffers). "
    "Overlap: total - exposed, hidden behind backward; % of total. Over ranks: skew is the waiting "
    "for late ranks, net the rest. Cost: E1 - the same epoch without gradient exchange (E3), what "
    "contention and copies add included. Residual: the lab's estimate, not measured. "
    "These answers differ, and each is right for its own question."
)


def communication(group: ConditionGroup) -> Table | None:
    """Every answer to how long communication takes, beside each other."""
    parallel = [row for row in group.rows if row.gpus > 1]
    own = [e for e in parallel if e.values and e.values.comm_total_s is not None]
    if not own:
        return None
    about = About("communication", "Communication", "E2", (COMMUNICATION, captions.runs(own)))
    lost = rest(parallel, own)
    shown = places(group, own, _HEADS)
    return table(group, about, shown, left_out(group, UNMEASURED, lost))


def _overlap_s(row: Row) -> float | None:
    values = row.values
    if values is None or values.comm_total_s is None or values.comm_exposed_s is None:
        return None
    return formulas.overlap_s(values.comm_total_s, values.comm_exposed_s)


def _overlap(row: Row) -> float | None:
    hidden_s, total_s = _overlap_s(row), row.values and row.values.comm_total_s
    return hidden_s / total_s if hidden_s is not None and total_s else None


def _residual_s(row: Row) -> float | None:
    return row.residual.comm_s if row.residual else None


_HEADS: tuple[Columns[Row], ...] = (
    Columns(
        "collectives, s",
        (
            Column("comm_total_s", "total", of_values("comm_total_s"), seconds),
            Column("comm_exposed_s", "exposed", of_values("comm_exposed_s"), seconds),
            Column("comm_forward_s", "forward", of_values("comm_forward_s"), seconds),
            Column("overlap_s", "overlap", _overlap_s, seconds),
        ),
    ),
    Columns("overlap %", (Column("overlap", "", _overlap, percent),)),
    Columns(
        "over ranks, s",
        (
            Column("skew_s", "skew", of_values("skew_s"), seconds),
            Column("net_s", "net", of_values("net_s"), seconds),
        ),
    ),
    Columns(
        "other views, s",
        (
            Column("comm_cost_s", "cost", of_values("comm_cost_s"), seconds),
            Column("comm_residual_s", "residual", _residual_s, seconds),
        ),
    ),
)
