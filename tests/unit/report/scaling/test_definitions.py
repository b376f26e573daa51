"""The table Speedup by definition where some ratios, or all, do not exist."""

import pytest

from hpml_jobs.core.strategies import Baseline
from tests.unit.builders import PUBLISHED_S, lab_cell, lab_record, texts_by_label

pytestmark = pytest.mark.usefixtures("no_checks")


def tables_of(builder, baseline=Baseline.SINGLE):
    (group,) = builder.collect(baseline).groups
    return [table for table in group.tables if table.label == "speedups"]


@pytest.mark.parametrize("baseline", Baseline)
def test_without_one_gpu_only_batches_are_compared(builder, baseline):
    builder.with_published_study(but=tuple((1, batch) for batch in (32, 128, 512)))
    (table,) = tables_of(builder, baseline)
    assert texts_by_label(table)["ddp 4-GPU b128"] == ("19.88", "–", "–", "–", "1.55")


def test_times_without_a_ratio_have_no_table(builder):
    for gpus in (2, 4):
        builder.with_record(lab_record(lab_cell(gpus, 32), PUBLISHED_S[gpus, 32]))
    assert not tables_of(builder)
