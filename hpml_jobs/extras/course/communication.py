"""Answers about communication: seconds (Q3.1), bandwidths (Q3.2), other messages (Q6)."""

from collections.abc import Sequence

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.place import Setup
from hpml_jobs.core.strategies import BandwidthKind
from hpml_jobs.extras.course.words import (
    cells,
    doubt,
    is_instrumented,
    main_rows,
    need,
    unanswered,
    unusable,
    usable,
)
from hpml_jobs.report.communication.messages import SentMessages, messages_by_setup
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.captions import cell_words, work_text
from hpml_jobs.report.frame.numbers import (
    aside,
    count,
    percent,
    seconds,
    three_digits,
)
from hpml_jobs.report.page.formats import Answer
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

Q6 = ("Q6", "Messages besides gradients")
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
    answered = usable(group, split, Affected.SPLIT)
    if not answered:
        return _by_residual(group, usable(group, rows, Affected.TIME), split)
    least = min(answered, key=_comm_share)
    most = max(answered, key=_comm_share)
    text = (
        f"Seconds per epoch, computation + communication: {_listed(group, answered)}."
    )
    shares = [
        captions.shown(percent(_comm_share(row)), group, Affected.SPLIT, row)
        for row in (least, most)
    ]
    if shares[0] == shares[1]:
        text += f" Communication is {shares[0]} % of the sum."
    else:
        where = cell_words(most.place, group.device)
        text += (
            f" Communication is {' to '.join(shares)} % of the sum, most on {where}."
        )
    text += " As the imported file reports them." if group.imported else f" {HOW}"
    evidence = f"Table 2 of {answered[0].strategy.value}; {cells(group, answered)}"
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
            captions.shown(seconds(s), group, Affected.SPLIT, row)
            for s in (compute_s, comm_s)
        )
        texts.append(f"{cell}: {' + '.join(times)}")
    return captions.first_few(texts, "; ")


def _why_missing(group: ConditionGroup) -> str:
    if group.a_cell.script is not None:
        return NOT_SEEN
    return NOT_REPORTED if group.imported else need(group, is_instrumented, FULL)


def _by_residual(
    group: ConditionGroup, rows: Sequence[Row], split: Sequence[Row]
) -> Answer:
    """Return the lab's residual estimate, which is derived and not measured, if there is one.

    `split` are the rows whose measured parts failed a check.
    """
    derived = [(row, row.residual) for row in rows if row.residual is not None]
    if split and not derived:
        return unusable(
            *SECONDS, f"Table 2 of {split[0].strategy.value}; {cells(group, split)}"
        )
    if not derived:
        return unanswered(*SECONDS, _why_missing(group))
    texts = []
    for row, residual in derived:
        compute = captions.shown(seconds(residual.compute_s), group, Affected.TIME, row)
        comm = captions.shown(seconds(residual.comm_s), group, Affected.TIME, row)
        texts.append(f"{cell_words(row.place, group.device)}: {compute} + {comm}")
    before = (
        "A check failed for every cell"
        if split
        else f"Not measured: {_why_missing(group)}"
    )
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
    rows = [row for row in main_rows(group) if _gb_per_s(row)]
    answered = usable(group, rows, Affected.BANDWIDTH)
    if rows and not answered:
        return unusable(
            *BANDWIDTH, f"Table 3 of {rows[0].strategy.value}; {cells(group, rows)}"
        )
    if not answered:
        return unanswered(*BANDWIDTH, _why_missing(group))
    texts = []
    for row in answered:
        speed = three_digits(_gb_per_s(row))
        marked = captions.shown(speed, group, Affected.BANDWIDTH, row)
        texts.append(f"{cell_words(row.place, group.device)}: {marked} GB/s")
    strategy, timing = answered[0].strategy, answered[0].timing
    size = "?"
    if timing is not None and timing.gradient_bytes is not None:
        size = count(timing.gradient_bytes)
    formula = FORMULAS.get(
        strategy.traffic.bandwidth, "Not a bus bandwidth (see Table 3): "
    )
    before = formula.format(size=size)
    evidence = f"Table 3 of {strategy.value}; {cells(group, answered)}"
    text = f"{before}{captions.first_few(texts, '; ')}. 1 GB = 1e9 bytes."
    return Answer(*BANDWIDTH, text, evidence, doubt(group, rows, Affected.BANDWIDTH))


def _gb_per_s(row: Row) -> float:
    """Return the bandwidth as the lab computes it; 0 if it is not known."""
    speed = row.bandwidth.lab_gb_per_s if row.bandwidth else None
    return speed or 0.0


def other_messages(group: ConditionGroup) -> Answer:
    """Answer Q6: the messages of an iteration that are not gradients."""
    texts = _gradients_only(group)
    if not texts:
        remedy = "" if group.a_cell.script else " (protocol=full)"
        needed = f"messages are counted in the instrumented epoch{remedy}"
        return unanswered(*Q6, need(group, is_instrumented, needed))
    text = "; ".join(texts)
    return Answer(*Q6, f"Are gradients the only messages? {text}.", "messages.csv")


def _gradients_only(group: ConditionGroup) -> list[str]:
    """Return for each strategy whether it sends gradients only, with the bytes of the others."""
    sent_by_setup = messages_by_setup(group)
    answers = (_sent_text(setup, sent) for setup, sent in sent_by_setup.items())
    return list(dict.fromkeys(answers))


def _sent_text(setup: Setup, sent_messages: list[SentMessages]) -> str:
    """Return `ddp: no, every iteration sends 104,616 B of gradients and 904 B of buffers`."""
    volumes: dict[str, float] = {}
    for sent in sent_messages:
        volumes[sent.purpose] = volumes.get(sent.purpose, 0) + sent.bytes_per_iteration
    gradients = volumes.pop("gradients", 0)
    name = f"{setup.strategy.value}{aside(setup.treatment)}"
    if not volumes:
        return f"{name}: yes"
    others = [f"{count(round(size))} B of {what}" for what, size in volumes.items()]
    rest = " and ".join(others)
    return f"{name}: no, every iteration sends {count(round(gradients))} B of gradients and {rest}"
