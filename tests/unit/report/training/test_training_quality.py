"""What was learnt: Table 4 and accuracy by epoch, with their deviations."""

from hpml_jobs.core.cell import Protocol
from tests.unit.builders import lab_cell, lab_record
from tests.unit.check_cases import change_every_rank
from tests.unit.training_runs import LAB


def test_repeats_of_one_seed_count_once_without_deviation(builder):
    for seed, repeat, accuracy in (
        (0, 0, 0.50),
        (0, 1, 0.60),
        (0, 2, 0.70),
        (1, 0, 0.62),
    ):
        for gpus in (1, 2) if seed == 0 else (1,):
            cell = lab_cell(gpus, 128, **LAB, evaluate=True, seed=seed, repeat=repeat)
            accurate = change_every_rank(test_accuracy=accuracy)
            builder.with_record(accurate(lab_record(cell, 27.0)))
    one, two = builder.table("table4").lines
    assert (one.texts[3], one.texts[-1]) == ("2", "61.00 ± 1.41")  # of 60 and 62
    assert (two.texts[3], two.texts[-1]) == ("1", "60.00")
    table = builder.table("table4")
    assert "standard deviation" in table.caption[-1]


def test_runs_of_fewer_epochs_are_omitted(builder):
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
            accurate = change_every_rank(test_accuracy=accuracy)
            builder.with_record(accurate(lab_record(cell, 15.0)))
    assert builder.table("table4").lines[0].texts[-1] == "61.00 ± 1.41"
    assert builder.table("shuffling").lines[0].texts[1:] == (
        "3 of 3",
        "1.5000 ± 0.0000",
        "61.00 ± 1.41",
    )
    assert builder.table("replicas").lines[0].texts[:2] == ("3", "61.00")
