"""What ranks hold and read: tables of shuffling and of replicas."""

import msgspec

from hpml_jobs.core.strategies import Strategy, SyncBuffers
from tests.unit.builders import lab_cell, lab_record
from tests.unit.training_runs import LAB, with_test_accuracy


def test_shuffling_table_counts_orders(builder):
    for seed in (0, 1):
        builder.with_record(lab_record(lab_cell(1, 128, **LAB, seed=seed), 27.0))
        for set_epoch, accuracy in ((True, 0.70), (False, 0.60)):
            cell = lab_cell(2, 128, **LAB, seed=seed, set_epoch=set_epoch)
            accuracies = (accuracy, accuracy + 0.02 * seed)
            builder.with_record(with_test_accuracy(lab_record(cell, 15.0), *accuracies))
    table = builder.table("shuffling")
    assert [(line.label, *line.texts[:3]) for line in table.lines] == [
        ("single 1-GPU b128", "not needed", "5 of 5", "2"),
        ("ddp 2-GPU b128", "yes", "5 of 5", "2"),
        ("ddp 2-GPU (no set_epoch) b128", "no", "1 of 5", "2"),
    ]
    assert [line.texts[4] for line in table.lines[1:]] == [
        "70.50 ± 0.71",
        "60.50 ± 0.71",
    ]


def test_shuffling_unknown_order_is_not_counted(builder):
    whole = lab_record(lab_cell(2, 128, **LAB, set_epoch=False), 15.0)
    bare = tuple(
        msgspec.structs.replace(epoch, order="") for epoch in whole.ranks[0].epochs
    )
    first = msgspec.structs.replace(whole.ranks[0], epochs=bare)
    builder.with_record(msgspec.structs.replace(whole, ranks=(first, whole.ranks[1])))
    table = builder.table("shuffling")
    assert table.lines[0].texts[1] == "–"


def test_replicas_table_compares_hashes(builder):
    equal = lab_record(lab_cell(2, 512, **LAB), 15.0)
    ranks = tuple(
        msgspec.structs.replace(rank, buffers_hash="0ff") for rank in equal.ranks
    )
    builder.with_record(msgspec.structs.replace(equal, ranks=ranks))
    off = lab_record(lab_cell(2, 512, **LAB, sync_buffers=SyncBuffers.OFF), 15.0)
    builder.with_record(with_test_accuracy(off, 0.52, 0.58))
    builder.with_record(
        lab_record(lab_cell(2, 512, **LAB, strategy=Strategy.ALLREDUCE), 15.0)
    )
    table = builder.table("replicas")
    hashes = {line.label: line.texts[-2:] for line in table.lines}
    assert hashes["ddp 2-GPU b512"] == ("equal", "equal")
    assert hashes["ddp 2-GPU (buffers off) b512"] == ("equal", "differ")
