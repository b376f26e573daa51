"""What was learnt: Table 4, accuracy by epoch, shuffling and buffers, with their deviations."""

import io
from math import log

import msgspec
import pytest
from rich.console import Console

from hpml_jobs.core.cell import Outcome, Protocol
from hpml_jobs.core.measurements import Text
from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.strategies import Strategy, SyncBuffers
from hpml_jobs.core.workload import Workload
from hpml_jobs.report.files import latex, markdown
from hpml_jobs.report.files.markdown import grid
from hpml_jobs.report.files.screen import show_all
from tests.unit.builders import lab_cell, lab_record

LAB = {"protocol": Protocol.LAB, "epochs": 5}
SCALED = Recipe(name="scaled", scaled=True)


def with_test_accuracy(record, *accuracies):
    """A record whose ranks test with these accuracies."""
    ranks = tuple(
        msgspec.structs.replace(rank, test_accuracy=accuracy)
        for rank, accuracy in zip(record.ranks, accuracies, strict=True)
    )
    return msgspec.structs.replace(record, ranks=ranks)


def add_large_batch_study(builder, seeds=(0, 1)):
    """Batch 128 on 1 GPU beside 512 on 2, plain and with a recipe, 5 epochs, two seeds."""
    for seed in seeds:
        more = {**LAB, "evaluate": True, "seed": seed}
        one = lab_record(lab_cell(1, 128, **more), 27.0)
        builder.with_record(with_test_accuracy(one, 0.70 + 0.01 * seed))
        for recipe, accuracy in ((Recipe(), 0.60), (SCALED, 0.64)):
            cell = lab_cell(2, 512, recipe=recipe, **more)
            builder.with_record(
                with_test_accuracy(lab_record(cell, 15.0), accuracy, accuracy + 0.02 * seed)
            )


TABLE_4 = """\
| Table 4                   | global batch |  lr | epochs | seeds | training loss | training acc., % |  test acc., % |
|:--------------------------|-------------:|----:|-------:|------:|--------------:|-----------------:|--------------:|
| single 1-GPU b128         |          128 | 0.1 |      5 |     2 | 1.2000 ± 0.0000 |     65.00 ± 0.00 |  70.50 ± 0.71 |
| ddp 2-GPU b512            |        1,024 | 0.1 |      5 |     2 | 1.2000 ± 0.0000 |     65.00 ± 0.00 |  60.50 ± 0.71 |
| ddp 2-GPU (scaled) b512   |        1,024 | 0.8 |      5 |     2 | 1.2000 ± 0.0000 |     65.00 ± 0.00 |  64.50 ± 0.71 |"""  # noqa: E501 - as written

EVALUATION = """\
| after epoch       | test accuracy, % |       |       | test accuracy, % |       | training loss |        |        | training loss |        |
|:------------------|-----------------:|------:|------:|------:|------:|--------------:|-------:|-------:|-------:|-------:|
|                   |                1 |     2 |     3 |     4 |     5 |             1 |      2 |      3 |      4 |      5 |
| single 1-GPU b128 |            30.00 | 40.00 | 50.00 | 60.00 | 70.00 |        1.5000 | 1.5000 | 1.4000 | 1.3000 | 1.2000 |"""  # noqa: E501 - as written


def collapse_spaces(text):
    """A table's text, however wide its columns are."""
    return [" ".join(line.replace("-", "").split()) for line in text.splitlines()]


def test_table_4_has_loss_and_accuracy_with_deviations(builder):
    """Table 4 has batch, learning rate, loss and accuracies with deviations over seeds."""
    add_large_batch_study(builder)
    assert collapse_spaces(grid(builder.table("table4"))) == collapse_spaces(TABLE_4)
    sheet = builder.table("table4").sheet
    row = dict(zip(sheet.columns, sheet.rows[0], strict=True))
    assert row["test_accuracy_deviation"] == pytest.approx(0.01 / 2**0.5)
    assert (row["treatment"], row["seeds"], row["train_loss"]) == ("", 2, pytest.approx(1.2))


def test_single_seed_has_no_deviation_and_a_note(builder):
    add_large_batch_study(builder, seeds=(0,))
    table = builder.table("table4")
    assert table.lines[0].texts[-1] == "70.00"
    assert table.notes == (
        "single seed, no deviation: single 1-GPU at batch 128; ddp 2-GPU at batch 512; "
        "ddp 2-GPU (scaled) at batch 512",
    )


def test_repeats_of_one_seed_count_once_without_deviation(builder):
    for seed, repeat, accuracy in ((0, 0, 0.50), (0, 1, 0.60), (0, 2, 0.70), (1, 0, 0.62)):
        for gpus in (1, 2) if seed == 0 else (1,):
            cell = lab_cell(gpus, 128, **LAB, evaluate=True, seed=seed, repeat=repeat)
            builder.with_record(with_test_accuracy(lab_record(cell, 27.0), *[accuracy] * gpus))
    one, two = builder.table("table4").lines
    assert (one.texts[3], one.texts[-1]) == ("2", "61.00 ± 1.41")  # of 60 and 62
    assert (two.texts[3], two.texts[-1]) == ("1", "60.00")
    for label in ("table4", "evaluation"):
        assert builder.table(label).notes == ("single seed, no deviation: ddp 2-GPU at batch 128",)
        assert "a single seed has no deviation" in builder.table(label).caption[-1]


def test_runs_of_fewer_epochs_are_omitted_and_noted(builder):
    full = {"protocol": Protocol.FULL, "epochs": 3}
    for seed, more, accuracy in ((0, full, 0.60), (1, full, 0.62), (2, {**LAB, "epochs": 2}, 0.1)):
        for set_epoch in (True, False):
            cell = lab_cell(2, 128, **more, evaluate=True, seed=seed, set_epoch=set_epoch)
            builder.with_record(with_test_accuracy(lab_record(cell, 15.0), accuracy, accuracy))
    said = (
        "runs of 2 epochs are omitted, others have 3: "
        "ddp 2-GPU at batch 128; ddp 2-GPU (no set_epoch) at batch 128"
    )
    for label in ("table4", "evaluation", "shuffling", "replicas"):
        assert builder.table(label).notes == (said,)
    assert builder.table("table4").lines[0].texts[-1] == "61.00 ± 1.41"
    assert builder.table("shuffling").lines[0].texts[1:3] == ("3 of 3", "2")
    assert builder.table("replicas").lines[0].texts[:2] == ("3", "2")
    assert [row[5:8] for row in builder.table("evaluation").sheet.rows[:3]] == [
        (epoch, 2, 2) for epoch in (1, 2, 3)
    ]


def test_outputs_without_classes_show_dash_for_accuracy(builder):
    whole = lab_record(lab_cell(2, 128, **LAB, evaluate=True), 15.0)
    ranks = tuple(
        msgspec.structs.replace(
            rank, test_accuracy=None, epochs=tuple(map(without_accuracy, rank.epochs))
        )
        for rank in whole.ranks
    )
    builder.with_record(msgspec.structs.replace(whole, ranks=ranks))
    assert builder.table("table4").lines[0].texts[-3:] == ("1.2000", "–", "–")
    assert builder.table("evaluation").lines[0].texts[:6] == ("–",) * 5 + ("1.5000",)
    assert builder.table("replicas").lines[0].texts[2:7] == ("1.200", "–", "–", "–", "–")


def without_accuracy(epoch):
    """An epoch of a network whose outputs are no class scores."""
    return msgspec.structs.replace(
        epoch, accuracy=0.0, share=msgspec.structs.replace(epoch.share, correct=None)
    )


def test_table_4_names_cells_without_numbers(builder):
    add_large_batch_study(builder)
    builder.with_cell(lab_cell(4, 512, **LAB, evaluate=True), Outcome.FAILED, "failed: it broke")
    (note,) = builder.table("table4").notes
    assert note == "no number; see Table 1 for the reason: ddp 4-GPU at batch 512"


def test_table_4_absent_without_evaluation_or_more_epochs(builder):
    builder.with_published_study()
    labels = {table.label for table in builder.collect().groups[0].full}
    assert not labels & {"table4", "evaluation", "shuffling"}


def test_epoch_accuracy_is_weighted_by_rank_samples(builder):
    builder.with_record(lab_record(lab_cell(1, 128, **LAB, evaluate=True), 27.0))
    assert collapse_spaces(grid(builder.table("evaluation"))) == collapse_spaces(EVALUATION)
    whole = lab_record(lab_cell(2, 128, **LAB, evaluate=True), 27.0)
    counted = zip(whole.ranks, ((10, 200), (70, 100)), strict=True)
    builder.with_record(
        msgspec.structs.replace(whole, ranks=tuple(with_last_epoch_counts(*one) for one in counted))
    )
    two = builder.table("evaluation").lines[1]
    assert two.texts[4] == "26.67"  # 80 of 300
    assert [row[5] for row in builder.table("evaluation").sheet.rows] == [1, 2, 3, 4, 5] * 2


def with_last_epoch_counts(rank, counted):
    """A rank that counted otherwise after the last epoch."""
    correct, samples = counted
    share = msgspec.structs.replace(rank.epochs[-1].share, correct=correct, samples=samples)
    last = msgspec.structs.replace(rank.epochs[-1], share=share)
    return msgspec.structs.replace(rank, epochs=(*rank.epochs[:-1], last))


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
        builder.with_record(with_test_accuracy(lab_record(cell, 15.0), accuracy, accuracy))
    assert builder.table("shuffling").answer.endswith(
        "test accuracy in % 60.50 against 70.50 (single seed, not comparable)."
    )


def test_shuffling_unknown_order_is_not_counted(builder):
    whole = lab_record(lab_cell(2, 128, **LAB, set_epoch=False), 15.0)
    bare = tuple(msgspec.structs.replace(epoch, order="") for epoch in whole.ranks[0].epochs)
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
    ranks = tuple(msgspec.structs.replace(rank, buffers_hash="0ff") for rank in equal.ranks)
    builder.with_record(msgspec.structs.replace(equal, ranks=ranks))
    off = lab_record(lab_cell(2, 512, **LAB, sync_buffers=SyncBuffers.OFF), 15.0)
    builder.with_record(with_test_accuracy(off, 0.52, 0.58))
    builder.with_record(lab_record(lab_cell(2, 512, **LAB, strategy=Strategy.ALLREDUCE), 15.0))
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
    tex = latex.document(report)
    assert tex.isascii()
    assert r"70.50 \ensuremath{\pm} 0.71" in tex


@pytest.mark.parametrize("width", [80, 110])
def test_many_epochs_fit_console_width(builder, width):
    add_large_batch_study(builder)
    console = Console(width=width, file=io.StringIO())
    show_all(builder.collect(), console)
    assert max(map(len, console.file.getvalue().splitlines())) <= width


GPT = Workload(
    name="gpt_nano",
    model="gpt",
    data="text",
    images=8_192,
    **{"layers": 4, "heads": 4, "width": 64, "context": 128, "vocab": 256},
    parameters=224_640,
)


def text_record(gpus, *, digest="5eed", **settings):
    """A record of text: loss 1.2 on the held-out text, whose unigram entropy is 4.5 bits."""
    record = lab_record(lab_cell(gpus, 64, workload=GPT, **settings), 20.0)
    ranks = tuple(
        msgspec.structs.replace(
            rank,
            test_accuracy=None,
            epochs=tuple(
                msgspec.structs.replace(
                    epoch,
                    accuracy=None,
                    share=epoch.share and msgspec.structs.replace(epoch.share, correct=None),
                )
                for epoch in rank.epochs
            ),
        )
        for rank in record.ranks
    )
    text = Text(sha256=digest, train_bytes=1_000_000, test_bytes=10**5, unigram_bits_per_byte=4.5)
    facts = msgspec.structs.replace(record.facts, text=text)
    return msgspec.structs.replace(record, ranks=ranks, facts=facts)


def test_text_has_bits_per_byte_beside_the_unigram_entropy(builder):
    """1.2 nats are 1.731 bits; a study of text always has the table."""
    for gpus in (1, 2):
        builder.with_record(text_record(gpus))
    table = builder.table("table4")
    assert [block.head for block in table.blocks][-3:] == [
        *("test loss", "test bits/byte", "unigram bits/byte"),
    ]
    assert {line.texts[-4:] for line in table.lines} == {("1.5000", "1.2000", "1.731", "4.500")}
    assert "Bits per byte: test loss / ln 2" in " ".join(table.caption)
    assert table.setting.startswith(
        "gpt (4 layers, 4 heads, width 64, vocabulary 256), 11,173,962 parameters; bytes of "
        "Python's standard library, 8,192 windows of 128 tokens per epoch"
    )
    row = dict(zip(table.sheet.columns, table.sheet.rows[1], strict=True))
    assert row["test_bits_per_byte"] == pytest.approx(1.2 / log(2))


def test_text_is_evaluated_in_bits_per_byte(builder):
    for gpus in (1, 2):
        builder.with_record(text_record(gpus, evaluate=True))
    table = builder.table("evaluation")
    assert table.blocks[0].head == "test bits/byte"
    assert {line.texts[:3] for line in table.lines} == {("1.731",) * 3}
    assert "of text" not in " ".join(table.caption)
    columns = table.sheet.columns
    assert [dict(zip(columns, row, strict=True))["test_accuracy"] for row in table.sheet.rows] == [
        None
    ] * 6


def test_cells_of_other_text_are_in_another_table(builder):
    builder.with_record(text_record(1))
    builder.with_record(text_record(2, digest="other"))
    assert len(builder.collect().groups) == 2
