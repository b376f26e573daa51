"""What ranks read: the table of shuffling."""

from msgspec.structs import replace

from tests.unit.builders import lab_cell, lab_record
from tests.unit.check_cases import change_rank
from tests.unit.training_runs import LAB


def test_shuffling_unknown_order_is_not_counted(builder):
    whole = lab_record(lab_cell(2, 128, **LAB, set_epoch=False), 15.0)
    bare = tuple(replace(epoch, order="") for epoch in whole.ranks[0].epochs)
    builder.with_record(change_rank(0, epochs=bare)(whole))
    assert builder.table("shuffling").lines[0].texts[1] == "–"
