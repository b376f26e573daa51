"""Full table of communication in the instrumented epoch: every answer, beside each other."""

from hpml_jobs.core import formulas
from hpml_jobs.report.merge.entries import Entry
from hpml_jobs.report.merge.scope import Scope
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


def communication(scope: Scope) -> Table | None:
    """Every answer to how long communication takes, beside each other."""
    parallel = [entry for entry in scope.entries if entry.gpus > 1]
    own = [e for e in parallel if e.values and e.values.comm_total_s is not None]
    if not own:
        return None
    about = About("communication", "Communication", "E2", (COMMUNICATION, captions.runs(own)))
    lost = rest(parallel, own)
    shown = places(scope, own, _HEADS)
    return table(scope, about, shown, left_out(scope, UNMEASURED, lost))


def _overlap_s(entry: Entry) -> float | None:
    values = entry.values
    if values is None or values.comm_total_s is None or values.comm_exposed_s is None:
        return None
    return formulas.overlap_s(values.comm_total_s, values.comm_exposed_s)


def _overlap(entry: Entry) -> float | None:
    hidden_s, total_s = _overlap_s(entry), entry.values and entry.values.comm_total_s
    return hidden_s / total_s if hidden_s is not None and total_s else None


def _residual_s(entry: Entry) -> float | None:
    return entry.residual.comm_s if entry.residual else None


_HEADS: tuple[Columns[Entry], ...] = (
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
