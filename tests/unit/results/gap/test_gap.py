"""The gap to the ideal speedup: its parts, their intervals, the sentence, table and picture."""

from random import Random

import msgspec
import numpy as np
import pytest

from hpml_jobs.core import formulas
from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.measurements import (
    Exchange,
    IterationPhases,
    Phases,
    Role,
    Scheduling,
)
from hpml_jobs.core.script import Script
from hpml_jobs.results.gap.causes import COMPUTE, EPOCH, GapCause, parts
from hpml_jobs.results.gap.replay import IN_FORWARD, IN_OPTIMIZER
from tests.unit.builders import lab_cell, lab_record, texts_by_label
from tests.unit.results.gap.simulated_ranks import simulate

pytestmark = pytest.mark.usefixtures("no_checks")
replace = msgspec.structs.replace


def a_run(
    gpus, epoch_s, *, stall_s=0.0, exchange_s=0.0, waits_s=(), queued_s=0.0, **cell
):
    """A run without overhead; rank r waits `waits_s[r]` for others, the last one as long."""
    cell = lab_cell(gpus, 128, **cell)
    record = lab_record(cell, epoch_s, stall_s)
    waits_s = [*waits_s, *[(waits_s or (0.0,))[-1]] * gpus][: len(record.ranks)]

    def epoch_of(epoch, wait_s):
        phases = epoch.phases and Phases(
            stall_s=stall_s,
            h2d_s=0.0,
            forward_s=epoch_s - stall_s - exchange_s - wait_s,
            backward_s=0.0,
            comm_exposed_s=exchange_s + wait_s,
            optimizer_s=0.0,
        )
        account = Scheduling(window_s=epoch_s, run_queue_s=queued_s)
        return replace(epoch, epoch_s=epoch_s, phases=phases, scheduling=account)

    ranks = [
        replace(
            rank,
            host=f"gr{rank.rank:03}",
            threads=1,
            epochs=tuple(epoch_of(epoch, wait_s) for epoch in rank.epochs),
        )
        for rank, wait_s in zip(record.ranks, waits_s, strict=True)
    ]
    of_all = Exchange(
        collectives=1, skew_s=0.0, net_s=exchange_s, exchange_s=exchange_s
    )
    exchange = of_all if len(ranks) > 1 else None
    return replace(record, ranks=tuple(ranks), exchange=exchange)


def group_of(builder, *records):
    for record in records:
        builder.with_record(record)
    (group,) = builder.collect().groups
    return group


def values_of(group):
    """The only gap's parts, rounded."""
    (gap,) = group.source.gaps.values()
    return {cause: round(part.value, 3) for cause, part in gap.parts.items()}


def sentences(group):
    table = next(table for table in group.tables if table.label == "gap")
    return [row[table.sheet.columns.index("sentence")] for row in table.sheet.rows]


ONE = {"gpus": 1, "epoch_s": 26.0, "stall_s": 4.0}
FOUR = {
    "gpus": 4,
    "epoch_s": 10.0,
    "stall_s": 2.0,
    "exchange_s": 2.25,
    "waits_s": (0.25,),
}
"""Rank 3 is late: of the missing 1.4, exchange takes 0.9, the loader 0.4, waiting 0.1."""


def late_rank_3():
    record = a_run(**FOUR)
    shown = a_run(**{**FOUR, "waits_s": (0.0,)}).ranks[3]
    return replace(record, ranks=(*record.ranks[:3], shown))


# ---- parts ----


def test_parts_sum_to_the_gap_whatever_is_measured():
    random = Random(1)
    names = (
        EPOCH,
        COMPUTE,
        *(cause for cause in GapCause if cause is not GapCause.UNEXPLAINED),
    )
    for _ in range(200):
        of, reference = (
            {name: random.expovariate(1) for name in names} for _ in range(2)
        )
        ideal = random.choice((2, 4, 128 / 48))
        of_causes = parts(of, reference, ideal)
        speedup = formulas.speedup(reference[EPOCH], of[EPOCH])
        assert sum(of_causes.values()) == pytest.approx(ideal - speedup)
        assert all(part >= 0 for cause, part in of_causes.items() if cause in names)


def test_each_cause_has_its_lost_seconds(builder):
    group = group_of(builder, a_run(**ONE), late_rank_3())
    assert values_of(group) == {
        GapCause.EXCHANGE: 0.9,
        GapCause.LOADER: 0.4,  # 2 s, of which 1 s scales
        GapCause.WAITING: 0.1,
        GapCause.CPUS: 0.0,
        GapCause.UNEXPLAINED: 0.0,
    }
    assert sentences(group) == [
        "Why 2.60 and not 4 times: 1.40 is lost, about 0.90 to communication, about 0.40 "
        "to data wait, others smaller."
    ]


def test_instrumented_epoch_counts_by_its_shares(builder):
    """Instruments that take half as long again change nothing of the parts."""

    def slower(epoch):
        phases = epoch.phases and replace(
            epoch.phases, forward_s=9.0, comm_exposed_s=6.0
        )
        return replace(epoch, epoch_s=15.0, phases=phases) if phases else epoch

    record = a_run(2, 10.0, exchange_s=4.0)
    ranks = [
        replace(rank, epochs=tuple(map(slower, rank.epochs))) for rank in record.ranks
    ]
    exchange = replace(record.exchange, exchange_s=6.0)
    record = replace(record, ranks=tuple(ranks), exchange=exchange)
    assert (
        values_of(group_of(builder, a_run(1, 12.0), record))[GapCause.EXCHANGE] == 0.8
    )


def test_without_phases_exchange_is_what_the_epoch_without_it_saves(builder):
    outside = {
        "protocol": Protocol.OUTSIDE,
        "script": Script(path="train.py", args="{batch}"),
    }
    record = a_run(2, 10.0)
    seconds = {Role.WARMUP: 11.0, Role.TIMED: 10.0, Role.UNSYNCED: 7.0}
    ranks = []
    for rank in record.ranks:
        epochs = [epoch for epoch in rank.epochs if epoch.role in seconds]
        ranks.append(
            replace(
                rank, epochs=tuple(replace(e, epoch_s=seconds[e.role]) for e in epochs)
            )
        )
    of_script = a_run(2, 10.0, **outside)
    record = replace(of_script, ranks=tuple(ranks), exchange=None)
    group = group_of(builder, a_run(1, 12.0, **outside), record)
    assert values_of(group) == {
        GapCause.EXCHANGE: 0.6,
        GapCause.LOADER: 0.0,
        GapCause.UNEXPLAINED: 0.2,
    }
    assert sentences(group) == [
        "Why 1.20 and not 2 times: 0.80 is lost, about 0.60 to communication, about 0.20 "
        "unexplained."
    ]


def test_waiting_for_cpus_is_at_most_what_computation_takes_longer(builder):
    """6 s of 10 s in the run queue, but computation is only 3.5 s longer than on one GPU."""
    group = group_of(builder, a_run(1, 26.0), a_run(4, 10.0, queued_s=6.0))
    assert values_of(group)[GapCause.CPUS] == 1.4
    assert sentences(group) == [
        "Why 2.60 and not 4 times: !1.40 is lost, about 1.40 to waiting for a free CPU."
    ]


# ---- what is not measured is no part ----


def test_protocol_lab_splits_off_the_loader_only(builder):
    lab = {"protocol": Protocol.LAB}
    group = group_of(builder, a_run(1, 26.0, **lab), a_run(4, 10.0, stall_s=2.0, **lab))
    assert values_of(group) == {GapCause.LOADER: 0.8, GapCause.UNEXPLAINED: 0.6}
    assert (
        "Why 2.60 and not 4 times: 1.40 is lost, about 0.80 to data wait, not all "
        "causes are measured: protocol=lab ends before the instrumented epoch (protocol=full "
        "measures it)." in sentences(group)[0]
    )


# ---- repeats ----


def repeated(gpus, epochs_s, **changes):
    return [
        a_run(gpus, epoch_s, repeat=repeat, **changes)
        for repeat, epoch_s in enumerate(epochs_s)
    ]


def test_intervals_come_from_repeats_of_both_cells(builder):
    ones = repeated(1, (25.9, 26.0, 26.1))
    group = group_of(builder, *ones, *repeated(4, (9.9, 10.0, 10.2), exchange_s=3.0))
    (gap,) = group.source.gaps.values()
    for part in gap.parts.values():
        assert part.low <= part.value <= part.high
    assert gap.parts[GapCause.EXCHANGE].low < 1.2 < gap.parts[GapCause.EXCHANGE].high
    texts = texts_by_label(
        next(table for table in group.tables if table.label == "gap")
    )
    assert texts["4 GPUs, batch 128"][2] == "1.20 [1.18, 1.21]"


# ---- where it is shown ----


# ---- replayed ----


def replayable(
    builder, epoch, *, gpus, alone_s=None, queued_s=0.0, change=None, **cell
):
    """Add a run with the arrays of a simulated epoch; its other epochs take as long.

    `alone_s` is the epoch without exchange, `queued_s` the time in the run queue with and without.
    """
    arrays, seconds = epoch.arrays, epoch.seconds
    parts_s = arrays["parts_s"].sum(axis=1)
    record = lab_record(lab_cell(gpus, 128, **cell), seconds)
    iterations = arrays["parts_s"].shape[1]
    ranks = []
    for rank, of_rank in zip(record.ranks, parts_s, strict=True):
        stall_s, h2d_s, forward_s, backward_s, exposed_s, optimizer_s = of_rank[
            :6
        ].tolist()
        last_s = float(arrays["parts_last_stall_s"][rank.rank])
        phases = Phases(
            stall_s=stall_s + last_s,
            h2d_s=h2d_s,
            forward_s=forward_s,
            backward_s=backward_s,
            comm_exposed_s=exposed_s,
            optimizer_s=optimizer_s,
        )
        account = Scheduling(window_s=seconds, run_queue_s=queued_s)
        epochs = []
        for one_epoch in rank.epochs:
            is_alone = one_epoch.role == Role.UNSYNCED
            if is_alone and alone_s is None:
                continue
            changes = {
                "epoch_s": alone_s if is_alone else seconds,
                "scheduling": account,
            }
            changes |= {"stall_s": 0.0 if is_alone else stall_s}
            if one_epoch.role == Role.INSTRUMENTED:
                changes |= {
                    "phases": phases,
                    "closure": formulas.closure(seconds, phases.parts_s),
                    "iterations": iterations,
                    "stall_s": phases.stall_s,
                }
            epochs.append(replace(one_epoch, **changes))
        count = arrays["collective_bytes"].shape[1]
        message = (
            replace(rank.communication.messages[0], count=count) if count else None
        )
        communication = count and replace(rank.communication, messages=(message,))
        ranks.append(
            replace(
                rank,
                epochs=tuple(epochs),
                threads=1,
                loader_workers=0,
                communication=communication or None,
            )
        )
    exchange = None
    if count:
        exchange_s = float(arrays["collective_exposed_s"].min(axis=0).sum())
        exchange = Exchange(
            collectives=count, skew_s=0.0, net_s=1.0, exchange_s=exchange_s
        )
    record = replace(record, ranks=tuple(ranks), exchange=exchange)
    record = change(record) if change else record
    slug = builder.with_record(record).slug
    np.savez(builder.study.cell(slug).iterations, **arrays)


SINGLE = {"forward": 0.015, "backward": 0.030, "optimizer": 0.005}


def exchanging_pair(builder, **changes):
    """Two ranks that exchange for 25 ms after 50 ms of computation, and one process."""
    replayable(builder, simulate(1, 391, **SINGLE), gpus=1)
    pair = simulate(2, 196, **SINGLE, exchange=0.025)
    replayable(builder, pair, gpus=2, **changes)
    (group,) = builder.collect().groups
    return group


def test_replayed_speedup_is_in_the_sentence(builder):
    group = exchanging_pair(builder)
    assert sentences(group) == [
        "Why 1.33 and not 2 times: 0.67 is lost, about 0.66 to communication."
    ]


def test_epoch_without_exchange_is_what_was_measured(builder):
    """It takes 10.8 s, not 9.8 s: exchange took nothing from computation, something else did."""
    group = exchanging_pair(builder, alone_s=10.78)
    assert sentences(group)[0].endswith(
        "about 0.48 to communication, about 0.19 unexplained."
    )


def test_row_of_parts_is_the_shape_of_the_phases():
    assert IterationPhases._fields[IN_FORWARD] == "comm_forward_s"
    assert IterationPhases._fields[IN_OPTIMIZER] == "comm_optimizer_s"
