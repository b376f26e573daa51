"""Communication in the instrumented epoch: the table, and the answers Q3.1 and Q3.2."""

from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple, Self

from hpml_jobs.core import formulas
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.strategies import BandwidthKind
from hpml_jobs.report.communication.messages import QUESTION, gradients_only
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.answers import (
    Answer,
    cells,
    doubt,
    main_rows,
    unanswered,
    unusable,
    usable,
)
from hpml_jobs.report.frame.builder import (
    UNMEASURED,
    Number,
    Shown,
    TableText,
    columns_of,
    filled,
    left_out,
    line_table,
    rest,
)
from hpml_jobs.report.frame.captions import cell_words, work_text
from hpml_jobs.report.frame.numbers import count, gb_per_s, percent, seconds
from hpml_jobs.report.frame.table import Table
from hpml_jobs.results.figures import Figures
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

COMMUNICATION = (
    "Of the rank that waits least, which the other ranks wait for. Total: seconds in which any "
    "collective is active. Exposed: the part that no computation hides; forward: the part of "
    "exposed inside forward (ddp: buffers). Overlap: total - exposed, hidden behind backward, in "
    "s and in % of total. Of exposed: exchange is the least of any rank, summed over collectives "
    "(over iterations before version 0.9.0: at most this); waiting, the rest, is for ranks that "
    "came later. All-reduces: net is the least of any rank, skew the waiting beyond it. Rooted: "
    "rank 0's time in broadcasts, gathers and scatters; in gathers it contains waiting for late "
    "ranks. Pack: flattening, copying back and averaging by hand, after backward; Table 2's Comm "
    "is exposed + pack. Cost: the timed epoch - the same epoch without gradient exchange, "
    "contention and copies included; +- its resolution, by the quartiles of the steps of both "
    "epochs. Residual: the lab's estimate (derived, not measured). The columns answer different "
    "questions, so they differ."
)


class CommunicationLine(NamedTuple):
    """The seconds of communication of a row, by every method."""

    comm_total_s: Annotated[Number, Shown("total", seconds, "collectives, s")]
    comm_exposed_s: Annotated[Number, Shown("exposed", seconds, "collectives, s")]
    comm_forward_s: Annotated[Number, Shown("forward", seconds, "collectives, s")]
    overlap_s: Annotated[Number, Shown("overlap", seconds, "collectives, s")]
    overlap: Annotated[Number, Shown("overlap %", percent)]
    exchange_s: Annotated[Number, Shown("exchange", seconds, "of exposed, s")]
    waiting_s: Annotated[Number, Shown("waiting", seconds, "of exposed, s")]
    skew_s: Annotated[Number, Shown("skew", seconds, "all-reduces, s")]
    net_s: Annotated[Number, Shown("net", seconds, "all-reduces, s")]
    rooted_s: Annotated[Number, Shown("rooted, s", seconds)]
    pack_s: Annotated[Number, Shown("pack, s", seconds)]
    comm_cost_s: Number
    comm_cost_resolution_s: Number
    comm_s: Number
    cost: Annotated[str | None, Shown("cost", str, "other views, s", on_page_only=True)]
    comm_residual_s: Annotated[Number, Shown("residual", seconds, "other views, s")]

    @classmethod
    def of(cls, row: Row) -> Self:
        """Return the line of a row."""
        figures = row.figures
        total_s, exposed_s, overlap_s = figures.comm_total_s, figures.comm_exposed_s, None
        if total_s is not None and exposed_s is not None:
            overlap_s = formulas.overlap_s(total_s, exposed_s)
        return filled(
            cls,
            figures,
            overlap_s=overlap_s,
            overlap=overlap_s / total_s if overlap_s is not None and total_s else None,
            cost=_cost(figures),
            comm_residual_s=row.residual.comm_s if row.residual else None,
        )


def communication(group: ConditionGroup) -> Table | None:
    """Return the table of communication times by every method, side by side."""
    parallel = [row for row in group.rows if row.gpus > 1]
    rows = [row for row in parallel if row.figures.comm_total_s is not None]
    if not rows:
        return None
    answers = gradients_only(group)
    text = TableText(
        "communication",
        "Communication",
        "instrumented epoch",
        (COMMUNICATION, captions.runs(rows)),
        answer=f"{QUESTION} {'; '.join(answers)}." if answers else "",
        affected=Affected.SPLIT,
    )
    notes = [
        *_not_split(group, rows),
        *_negative_costs(group, rows),
        *_unknown_resolution(group, rows),
        *left_out(group, UNMEASURED, rest(parallel, rows)),
    ]
    lines = [(row, CommunicationLine.of(row)) for row in rows]
    return line_table(group, text, lines, columns_of(CommunicationLine), notes)


def _not_split(group: ConditionGroup, rows: Iterable[Row]) -> list[str]:
    """Return notes on rows whose exposed communication is not split."""
    whole = [row for row in rows if row.figures.exchange_s is None]
    older = [row for row in whole if row.strategy.under_torchrun]
    one_process = [row for row in whole if not row.strategy.under_torchrun]
    return [
        *left_out(group, "exchange and waiting are not recorded before version 0.6.0", older),
        *left_out(group, "skew and net are of all collectives in records before 0.6.0", older),
        *left_out(group, "no exchange and waiting: one process drives all GPUs", one_process),
    ]


def _cost(figures: Figures) -> str | None:
    """Return the cost with its resolution; a cost within the resolution is not resolved."""
    if figures.comm_cost_s is None or figures.comm_cost_resolution_s is None:
        return None if figures.comm_cost_s is None else seconds(figures.comm_cost_s)
    resolution = f"±{seconds(figures.comm_cost_resolution_s)}"
    if abs(figures.comm_cost_s) <= figures.comm_cost_resolution_s:
        return f"not resolved ({resolution})"
    return f"{seconds(figures.comm_cost_s)} {resolution}"


def _negative_costs(group: ConditionGroup, rows: Iterable[Row]) -> list[str]:
    """Return a note on costs below zero by more than their resolution."""
    negative = [row for row in rows if (row.figures.comm_cost_s or 0.0) < -_resolution_s(row)]
    why = "the cost is negative beyond its resolution: one of the two epochs was disturbed"
    return left_out(group, why, negative)


def _resolution_s(row: Row) -> float:
    return row.figures.comm_cost_resolution_s or 0.0


def _unknown_resolution(group: ConditionGroup, rows: Iterable[Row]) -> list[str]:
    """Return a note on costs of records that have no quartiles of steps."""
    unknown = [
        row
        for row in rows
        if row.figures.comm_cost_s is not None and row.figures.comm_cost_resolution_s is None
    ]
    return left_out(group, "the resolution of the cost is not recorded before 0.6.0", unknown)


SECONDS = ("Q3.1", "Computation and communication")
BANDWIDTH = ("Q3.2", "Communication bandwidth")

HOW = (
    "Both are measured in an epoch with instruments after the timed one, on the rank that waits "
    "least: communication is the time of collectives that no computation hides, computation is "
    "the rest without data loading."
)
FULL = "needs an instrumented epoch (protocol=full)"
NOT_SEEN = "was not seen from outside of the script"
NOT_REPORTED = "the imported file does not report it"
FORMULA = (
    "A ring all-reduce (Patarasuk and Yuan, 2009) takes T = 2(N-1) x (alpha + (S/N) / B), and "
    "each rank sends 2(N-1)/N x S bytes; S = {size} bytes of gradients. The bandwidth is "
    "2(N-1)/N x bytes of gradients / seconds in which they are being sent: "
)
SHARDED_FORMULA = (
    "A ring reduce-scatter is the first half of a ring all-reduce (Patarasuk and Yuan, 2009): "
    "T = (N-1) x (alpha + (S/N) / B), and each rank sends (N-1)/N x S bytes; S = {size} bytes of "
    "gradients. The bandwidth is (N-1)/N x bytes of gradients / seconds in which they are being "
    "sent: "
)
FORMULAS = {BandwidthKind.BUS: FORMULA, BandwidthKind.SHARDED: SHARDED_FORMULA}


def communication_seconds(group: ConditionGroup) -> Answer:
    """Answer Q3.1: seconds of computation and communication of every parallel cell."""
    rows = main_rows(group)
    split = [row for row in rows if _split(row)]
    shown = usable(group, split, Affected.SPLIT)
    if not shown:
        return _by_residual(group, usable(group, rows, Affected.TIME), split)
    least, most = (of(shown, key=_comm_share) for of in (min, max))
    text = f"Seconds per epoch, computation + communication: {_listed(group, shown)}."
    shares = [
        captions.shown(percent(_comm_share(row)), group, Affected.SPLIT, row)
        for row in (least, most)
    ]
    if shares[0] == shares[1]:
        text += f" Communication is {shares[0]} % of the two."
    else:
        where = cell_words(most.place, group.device)
        text += f" Communication is {' to '.join(shares)} % of the two, most on {where}."
    text += " As the imported file reports them." if group.imported else f" {HOW}"
    evidence = f"Table 2 of {shown[0].strategy.value}; {cells(group, shown)}"
    return Answer(*SECONDS, text, evidence, doubt(group, split, Affected.SPLIT))


def _split(row: Row) -> tuple[float, float] | None:
    """Return the seconds of computation and of communication; None if not measured."""
    compute_s, comm_s = row.figures.compute_s, row.figures.comm_s
    return None if compute_s is None or comm_s is None else (compute_s, comm_s)


def _comm_share(row: Row) -> float:
    compute_s, comm_s = _split(row) or (0.0, 0.0)
    whole_s = compute_s + comm_s
    return comm_s / whole_s if whole_s else 0.0


def _listed(group: ConditionGroup, rows: Sequence[Row]) -> str:
    texts = []
    for row in rows:
        compute_s, comm_s = _split(row) or (0.0, 0.0)
        cell = cell_words(row.place, group.device)
        times = (
            captions.shown(seconds(s), group, Affected.SPLIT, row) for s in (compute_s, comm_s)
        )
        texts.append(f"{cell}: {' + '.join(times)}")
    return captions.first_few(texts, "; ")


def _why_missing(group: ConditionGroup) -> str:
    if group.a_cell.script is not None:
        return NOT_SEEN
    return NOT_REPORTED if group.imported else FULL


def _by_residual(group: ConditionGroup, rows: Sequence[Row], split: Sequence[Row]) -> Answer:
    """Return the lab's residual estimate, which is derived and not measured, if there is one.

    `split` are the rows whose measured parts failed a check.
    """
    derived = [(row, row.residual) for row in rows if row.residual is not None]
    if split and not derived:
        return unusable(*SECONDS, f"Table 2 of {split[0].strategy.value}; {cells(group, split)}")
    if not derived:
        return unanswered(*SECONDS, _why_missing(group))
    texts = [
        f"{cell_words(row.place, group.device)}: "
        + " + ".join(
            captions.shown(seconds(s), group, Affected.TIME, row)
            for s in (residual.compute_s, residual.comm_s)
        )
        for row, residual in derived
    ]
    before = "A check failed for every cell" if split else f"Not measured: {_why_missing(group)}"
    text = (
        f"{before}. The lab's residual estimate, derived from whole times, in seconds "
        f"per {work_text(group.work)}, computation + communication: "
        f"{captions.first_few(texts, '; ')}. It counts everything that slows down several "
        "processes as communication, and nothing that is hidden behind computation."
    )
    listed = [row for row, _ in derived]
    evidence = f"Table 2r of {listed[0].strategy.value}; {cells(group, listed)}"
    return Answer(*SECONDS, text, evidence, is_answered=False)


def bandwidths(group: ConditionGroup) -> Answer:
    """Answer Q3.2: the bandwidth of the gradients' all-reduce in every parallel cell."""
    rows = [row for row in main_rows(group) if row.bandwidth and row.bandwidth.lab_gb_per_s]
    shown = usable(group, rows, Affected.BANDWIDTH)
    if rows and not shown:
        return unusable(*BANDWIDTH, f"Table 3 of {rows[0].strategy.value}; {cells(group, rows)}")
    if not shown:
        return unanswered(*BANDWIDTH, _why_missing(group))
    texts = [
        f"{cell_words(row.place, group.device)}: "
        + captions.shown(gb_per_s(row.bandwidth.lab_gb_per_s), group, Affected.BANDWIDTH, row)
        + " GB/s"
        for row in shown
        if row.bandwidth and row.bandwidth.lab_gb_per_s
    ]
    kind = shown[0].strategy.traffic.bandwidth
    timing = shown[0].timing
    size = "?" if timing is None or timing.gradient_bytes is None else count(timing.gradient_bytes)
    formula = FORMULAS.get(kind, "Not a bus bandwidth (see Table 3): ")
    before = formula.format(size=size)
    evidence = f"Table 3 of {shown[0].strategy.value}; {cells(group, shown)}"
    text = f"{before}{captions.first_few(texts, '; ')}. 1 GB = 1e9 bytes."
    return Answer(*BANDWIDTH, text, evidence, doubt(group, rows, Affected.BANDWIDTH))
