"""What ranks hold and read: tables of shuffling and of replicas, with their answers."""

import io

import msgspec
from rich.console import Console

from hpml_jobs.core.strategies import Strategy, SyncBuffers
from hpml_jobs.report.files import markdown
from hpml_jobs.report.files.screen import show_all
from tests.unit.builders import lab_cell, lab_record
from tests.unit.training_runs import LAB, add_large_batch_study, with_test_accuracy


def test_shuffling_table_counts_orders_and_answers_q5(builder):
    """The answer to lab question Q5 uses the numbers of this study."""
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
    assert table.answer == (
        "Why does ddp need set_epoch (lab Q5)? 2 GPUs, batch 128 (ddp, no set_epoch): 1 of 5 "
        "orders of a rank, with it 5 of 5; training loss 1.2000 ± 0.0000 against 1.2000 ± 0.0000 "
        "(within the deviations); test accuracy in % 60.50 ± 0.71 against 70.50 ± 0.71 (more than "
        "the deviations)."
    )


def test_shuffling_single_seed_with_repeats_claims_nothing(builder):
    for repeat, set_epoch in ((0, True), (1, True), (0, False), (1, False)):
        cell = lab_cell(2, 128, **LAB, repeat=repeat, set_epoch=set_epoch)
        accuracy = (0.70 if set_epoch else 0.60) + 0.01 * repeat
        builder.with_record(
            with_test_accuracy(lab_record(cell, 15.0), accuracy, accuracy)
        )
    assert builder.table("shuffling").answer.endswith(
        "test accuracy in % 60.50 against 70.50 (single seed, not comparable)."
    )


def test_shuffling_unknown_order_is_not_counted(builder):
    whole = lab_record(lab_cell(2, 128, **LAB, set_epoch=False), 15.0)
    bare = tuple(
        msgspec.structs.replace(epoch, order="") for epoch in whole.ranks[0].epochs
    )
    first = msgspec.structs.replace(whole.ranks[0], epochs=bare)
    builder.with_record(msgspec.structs.replace(whole, ranks=(first, whole.ranks[1])))
    table = builder.table("shuffling")
    assert table.lines[0].texts[1] == "–"
    assert table.answer.endswith(
        "unknown orders of a rank; no cell with set_epoch to compare with."
    )


def test_replicas_table_with_sync_buffers_answers_q7(builder):
    """Cells with sync_buffers= set answer lab question Q7: are gradients alone enough?"""
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
    assert table.answer == (
        "Would gradients alone be enough (lab Q7)? They keep parameters equal, but not BatchNorm's "
        "buffers. 2 GPUs, batch 512 (ddp): parameters equal, buffers equal, training loss 1.2000, "
        "test accuracy 60.00 %, ranks of one run differ by 0.00 points at most; 2 GPUs, batch 512 "
        "(ddp, buffers off): parameters equal, buffers differ, training loss 1.2000, test accuracy "
        "55.00 %, ranks of one run differ by 6.00 points at most."
    )


def test_replicas_caption_gives_means_over_seeds(builder):
    for repeat in range(5):
        builder.with_record(lab_record(lab_cell(2, 512, **LAB, repeat=repeat), 15.0))
    caption = " ".join(builder.table("replicas").caption)
    assert "Mean and sample standard deviation over seeds" in caption
    assert "Median" not in caption


def test_replicas_table_without_sync_buffers_has_no_answer(builder):
    builder.with_published_study()
    assert builder.table("replicas").answer == ""


def test_answer_precedes_its_table_in_every_format(builder):
    add_large_batch_study(builder)
    builder.with_record(lab_record(lab_cell(2, 128, **LAB, set_epoch=False), 15.0))
    report = builder.collect()
    console = Console(width=110, file=io.StringIO())
    show_all(report, console)
    for text in (markdown.document(report), console.file.getvalue()):
        below = text[text.index("Shuffling\n") :]
        assert 0 < below.index("Why does ddp need set") < below.index("not needed")
