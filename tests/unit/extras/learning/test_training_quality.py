"""What was learnt: Table 4 and accuracy by epoch, with their deviations."""

import msgspec

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.measurements import Text
from hpml_jobs.core.workload import Workload
from tests.unit.builders import lab_cell, lab_record
from tests.unit.training_runs import LAB, with_test_accuracy


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


def test_cells_of_other_text_are_in_another_table(builder):
    builder.with_record(text_record(1))
    builder.with_record(text_record(2, digest="other"))
    assert len(builder.collect().groups) == 2
