"""Throughput in the unit of a workload: tokens of text, samples, images."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.built_in import Unit
from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.workload import Workload
from tests.unit.builders import DIGITS, a_cell, a_record, texts_by_label
from tests.unit.study_builder import StudyBuilder

WINDOWS, CONTEXT = 8_192, 128
TEXT = Workload(
    name="mygpt",
    model="mygpt:build",
    data="mygpt:windows",
    unit=Unit.TOKENS,
    context=CONTEXT,
    images=WINDOWS,
)
EPOCHS_S = {1: 16.0, 4: 5.0}


def text_cell(gpus, **changes):
    return a_cell(gpus=gpus, batch=32, workload=TEXT, protocol=Protocol.LAB, **changes)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study of windows of 128 tokens on 1 and 4 GPUs."""
    builder = StudyBuilder(tmp_path_factory.mktemp("units") / "mygpt-greene-v100")
    for gpus, epoch_s in EPOCHS_S.items():
        builder.with_record(a_record(text_cell(gpus), epoch_s=epoch_s))
    return builder


@pytest.fixture(scope="module")
def report(study):
    return study.collect()


@pytest.mark.parametrize(
    ("changes", "unit", "per_sample", "samples"),
    [
        ({}, Unit.IMAGES, 1, "images"),
        ({"data": "mine:dataset"}, Unit.SAMPLES, 1, "samples"),
        (
            {"data": "mine:dataset", "unit": Unit.TOKENS, "context": 1024},
            Unit.TOKENS,
            1024,
            "samples of 1,024 tokens",
        ),
        ({"data": "mine:dataset", "unit": Unit.TOKENS}, Unit.TOKENS, None, "samples"),
    ],
)
def test_unit_follows_from_the_data_unless_given(changes, unit, per_sample, samples):
    workload = replace(DIGITS, **changes)
    assert workload.throughput_unit is unit
    assert workload.units_per_sample == per_sample
    assert workload.samples_text == samples


@pytest.mark.parametrize("given", [{"unit": Unit.TOKENS}, {"context": 128}])
def test_unit_and_context_are_part_of_the_hash(given):
    plain = replace(TEXT, unit=None, context=None)
    changed = replace(plain, **given)
    assert a_cell(workload=plain).digest != a_cell(workload=changed).digest


def test_tokens_per_s_from_raw_values_by_hand(report):
    """Four ranks of 2,048 windows in 5 s: 8,192 x 128 / 5 tokens/s."""
    (four,) = (row for row in report.groups[0].source.timed if row.gpus == 4)
    (record,) = four.records
    by_hand = sum(rank.timed.samples for rank in record.ranks) * CONTEXT / 5.0
    assert by_hand == pytest.approx(209_715.2)
    assert four.timing.units_per_s == pytest.approx(by_hand)
    table = next(table for table in report.groups[0].full if table.label == "scaling")
    assert "tokens/s" in [block.head for block in table.blocks]
    assert "!209,715" in texts_by_label(table)["4 GPUs, batch 32"]


def test_padding_of_the_sampler_is_in_the_tokens():
    """8,193 windows on 4 ranks are 4 x 2,049."""
    workload = replace(TEXT, images=WINDOWS + 1)
    cell = a_cell(gpus=4, batch=32, workload=workload, protocol=Protocol.LAB)
    assert a_record(cell).units == 4 * 2_049 * CONTEXT


def test_unknown_context_is_no_throughput_not_one_token():
    workload = replace(TEXT, context=None)
    record = a_record(
        a_cell(gpus=4, batch=32, workload=workload, protocol=Protocol.LAB)
    )
    assert (record.samples, record.units) == (WINDOWS, None)
