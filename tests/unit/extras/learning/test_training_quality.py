"""What was learnt: Table 4 and accuracy by epoch, with their deviations."""

import io
from math import log

import msgspec
import pytest
from rich.console import Console

from hpml_jobs.core.cell import Outcome, Protocol
from hpml_jobs.core.measurements import Text
from hpml_jobs.core.workload import Workload
from hpml_jobs.report.files.markdown import grid
from hpml_jobs.report.files.screen import show_all
from tests.unit.builders import lab_cell, lab_record
from tests.unit.training_runs import LAB, add_large_batch_study, with_test_accuracy

TABLE_4 = """\
| Table 4                   | global batch |  lr | epochs | seeds | training loss | training acc., % |  test acc., % |
|:--------------------------|-------------:|----:|-------:|------:|--------------:|-----------------:|--------------:|
| single 1-GPU b128         |          128 | 0.1 |      5 |     2 | 1.2000 ± 0.0000 |     65.00 ± 0.00 |  70.50 ± 0.71 |
| ddp 2-GPU b512            |        1,024 | 0.1 |      5 |     2 | 1.2000 ± 0.0000 |     65.00 ± 0.00 |  60.50 ± 0.71 |
| ddp 2-GPU (scaled) b512   |        1,024 | 0.8 |      5 |     2 | 1.2000 ± 0.0000 |     65.00 ± 0.00 |  64.50 ± 0.71 |"""  # noqa: E501 - as written


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
    assert (row["treatment"], row["seeds"], row["train_loss"]) == (
        "",
        2,
        pytest.approx(1.2),
    )


def test_single_seed_has_no_deviation_and_a_note(builder):
    add_large_batch_study(builder, seeds=(0,))
    table = builder.table("table4")
    assert table.lines[0].texts[-1] == "70.00"
    assert table.notes == (
        "single seed, no deviation: single 1-GPU at batch 128; ddp 2-GPU at batch 512; "
        "ddp 2-GPU (scaled) at batch 512",
    )


def test_repeats_of_one_seed_count_once_without_deviation(builder):
    for seed, repeat, accuracy in (
        (0, 0, 0.50),
        (0, 1, 0.60),
        (0, 2, 0.70),
        (1, 0, 0.62),
    ):
        for gpus in (1, 2) if seed == 0 else (1,):
            cell = lab_cell(gpus, 128, **LAB, evaluate=True, seed=seed, repeat=repeat)
            builder.with_record(
                with_test_accuracy(lab_record(cell, 27.0), *[accuracy] * gpus)
            )
    one, two = builder.table("table4").lines
    assert (one.texts[3], one.texts[-1]) == ("2", "61.00 ± 1.41")  # of 60 and 62
    assert (two.texts[3], two.texts[-1]) == ("1", "60.00")
    table = builder.table("table4")
    assert table.notes == ("single seed, no deviation: ddp 2-GPU at batch 128",)
    assert "a single seed has no deviation" in table.caption[-1]


def test_runs_of_fewer_epochs_are_omitted_and_noted(builder):
    full = {"protocol": Protocol.FULL, "epochs": 3}
    for seed, more, accuracy in (
        (0, full, 0.60),
        (1, full, 0.62),
        (2, {**LAB, "epochs": 2}, 0.1),
    ):
        for set_epoch in (True, False):
            cell = lab_cell(
                2, 128, **more, evaluate=True, seed=seed, set_epoch=set_epoch
            )
            builder.with_record(
                with_test_accuracy(lab_record(cell, 15.0), accuracy, accuracy)
            )
    said = (
        "runs of 2 epochs are omitted, others have 3: "
        "ddp 2-GPU at batch 128; ddp 2-GPU (no set_epoch) at batch 128"
    )
    for label in ("table4", "shuffling", "replicas"):
        assert builder.table(label).notes == (said,)
    assert builder.table("table4").lines[0].texts[-1] == "61.00 ± 1.41"
    assert builder.table("shuffling").lines[0].texts[1:3] == ("3 of 3", "2")
    assert builder.table("replicas").lines[0].texts[:2] == ("3", "2")


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
    assert builder.table("replicas").lines[0].texts[2:7] == (
        "1.200",
        "–",
        "–",
        "–",
        "–",
    )


def without_accuracy(epoch):
    """An epoch of a network whose outputs are no class scores."""
    return msgspec.structs.replace(
        epoch, accuracy=0.0, share=msgspec.structs.replace(epoch.share, correct=None)
    )


def test_table_4_names_cells_without_numbers(builder):
    add_large_batch_study(builder)
    builder.with_cell(
        lab_cell(4, 512, **LAB, evaluate=True), Outcome.FAILED, "failed: it broke"
    )
    (note,) = builder.table("table4").notes
    assert note == "no number; see Table 1 for the reason: ddp 4-GPU at batch 512"


def test_table_4_absent_without_evaluation_or_more_epochs(builder):
    builder.with_published_study()
    labels = {table.label for table in builder.collect().groups[0].full}
    assert not labels & {"table4", "shuffling"}


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
                    share=epoch.share
                    and msgspec.structs.replace(epoch.share, correct=None),
                )
                for epoch in rank.epochs
            ),
        )
        for rank in record.ranks
    )
    text = Text(
        sha256=digest,
        train_bytes=1_000_000,
        test_bytes=10**5,
        unigram_bits_per_byte=4.5,
    )
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
    assert {line.texts[-4:] for line in table.lines} == {
        ("1.5000", "1.2000", "1.731", "4.500")
    }
    assert "Bits per byte: test loss / ln 2" in " ".join(table.caption)
    assert table.setting.startswith(
        "gpt (4 layers, 4 heads, width 64, vocabulary 256), 11,173,962 parameters; bytes of "
        "Python's standard library, 8,192 windows of 128 tokens per epoch"
    )
    row = dict(zip(table.sheet.columns, table.sheet.rows[1], strict=True))
    assert row["test_bits_per_byte"] == pytest.approx(1.2 / log(2))


def test_cells_of_other_text_are_in_another_table(builder):
    builder.with_record(text_record(1))
    builder.with_record(text_record(2, digest="other"))
    assert len(builder.collect().groups) == 2
