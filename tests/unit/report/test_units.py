"""Throughput in the unit of a workload: tokens of text, in every format and every command."""

import io

import msgspec
import pytest
from rich.console import Console

from hpml_jobs.core.built_in import DATASETS, UNREPORTED_DATA, Unit
from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.workload import Workload
from hpml_jobs.report import page
from hpml_jobs.report.files.screen import show_all, show_first
from tests.unit.builders import DIGITS, a_cell, a_record, texts_by_label
from tests.unit.report.choose.made_choice import made_choice
from tests.unit.study_builder import StudyBuilder, write_tables

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


@pytest.fixture(scope="module")
def files(study, report):
    """The texts of the report folder by name."""
    return {
        path.name: path.read_text() for path in write_tables(report, study.study.report)
    }


@pytest.mark.parametrize(
    ("changes", "unit", "per_sample", "samples"),
    [
        ({}, Unit.IMAGES, 1, "images"),
        ({"data": "mine:dataset"}, Unit.SAMPLES, 1, "samples"),
        ({"data": "mine:dataset", "unit": Unit.IMAGES}, Unit.IMAGES, 1, "images"),
        (
            {"data": "mine:dataset", "unit": Unit.TOKENS, "context": 1024},
            Unit.TOKENS,
            1024,
            "samples of 1,024 tokens",
        ),
        ({"data": "mine:dataset", "unit": Unit.TOKENS}, Unit.TOKENS, None, "samples"),
        ({"data": UNREPORTED_DATA}, Unit.IMAGES, 1, "images"),
    ],
)
def test_unit_follows_from_the_data_unless_given(changes, unit, per_sample, samples):
    workload = msgspec.structs.replace(DIGITS, **changes)
    assert workload.throughput_unit is unit
    assert workload.units_per_sample == per_sample
    assert workload.samples_text == samples


@pytest.mark.parametrize("given", [{"unit": Unit.TOKENS}, {"context": 128}])
def test_unit_and_context_are_part_of_the_hash(given):
    plain = msgspec.structs.replace(TEXT, unit=None, context=None)
    changed = msgspec.structs.replace(plain, **given)
    assert a_cell(workload=plain).digest != a_cell(workload=changed).digest


def test_tokens_per_s_from_raw_values_by_hand(report):
    """Four ranks of 2,048 windows in 5 s: 8,192 x 128 / 5 tokens/s."""
    (four,) = (row for row in report.groups[0].source.timed if row.gpus == 4)
    (record,) = report.groups[0].source.records(four)
    by_hand = sum(rank.timed.samples for rank in record.ranks) * CONTEXT / 5.0
    assert by_hand == pytest.approx(209_715.2)
    assert four.timing.units_per_s == pytest.approx(by_hand)
    table = next(table for table in report.groups[0].full if table.label == "scaling")
    assert "tokens/s" in [block.head for block in table.blocks]
    assert "!209,715" in texts_by_label(table)["ddp 4-GPU b32"]
    assert "tokens/s: tokens of the samples processed" in table.caption[0]


def test_padding_of_the_sampler_is_in_the_tokens():
    """8,193 windows on 4 ranks are 4 x 2,049."""
    workload = msgspec.structs.replace(TEXT, images=WINDOWS + 1)
    cell = a_cell(gpus=4, batch=32, workload=workload, protocol=Protocol.LAB)
    assert a_record(cell).units == 4 * 2_049 * CONTEXT


def test_unknown_context_is_no_throughput_not_one_token():
    workload = msgspec.structs.replace(TEXT, context=None)
    record = a_record(
        a_cell(gpus=4, batch=32, workload=workload, protocol=Protocol.LAB)
    )
    assert (record.samples, record.units) == (WINDOWS, None)


def test_every_file_says_tokens_per_s_and_none_images_per_s(files):
    for name in ("tables.md", "tables.json"):
        assert "tokens/s" in files[name], name
        assert "samples of 128 tokens per epoch" in files[name], name
        assert "images/s" not in files[name], name
    head, *rows = files["scaling.csv"].splitlines()
    assert "units_per_s" in head
    assert "images_per_s" not in head
    assert all(",tokens," in row for row in rows)
    assert "209715.2" in files["scaling.csv"]
    assert "charged_gpu_s_per_1000_units" in files["choice.csv"]


def test_screens_and_page_say_tokens_per_s(report):
    for draw in (show_all, show_first):
        console = Console(width=150, file=io.StringIO())
        draw(report, console)
        text = console.file.getvalue()
        assert "tokens/s" in text
        assert "images" not in text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpml_jobs.report.pictures.pictures", lambda report: {})
        html = page.files(report)["report.html"]
    assert "tokens per second" in html
    assert "tokens/s" in html


def test_choice_is_in_tokens(study):
    made = made_choice(study)
    assert "!209,715 tokens/s" in made.table.answer
    (cell,) = (cell for cell in made.cells if cell["gpus"] == 4)
    assert (cell["unit"], cell["units_per_s"]) == ("tokens", pytest.approx(209_715.2))
    assert cell["samples_per_s"] == pytest.approx(WINDOWS / 5.0)


def test_cost_is_per_thousand_tokens(report):
    """16 s for 1,048,576 tokens on one GPU: 0.0153 GPU-seconds per 1,000 of them."""
    table = next(table for table in report.groups[0].full if table.label == "choice")
    (single,) = (
        values
        for row in table.sheet.rows
        if (values := dict(zip(table.sheet.columns, row, strict=True)))["gpus"] == 1
    )
    assert single["charged_gpu_s_per_1000_units"] == pytest.approx(0.0153, abs=5e-5)
    assert single["charged_gpu_s_per_1000_samples"] == pytest.approx(1e3 * 16 / WINDOWS)
    assert single["unit"] == "tokens"


def test_groups_of_images_and_tokens_have_each_their_unit(builder):
    for workload in (TEXT, DIGITS):
        for gpus in (1, 4):
            cell = a_cell(gpus=gpus, batch=32, workload=workload, protocol=Protocol.LAB)
            builder.with_record(a_record(cell))
    report = builder.collect()
    heads = {
        head
        for group in report.groups
        for table in group.full
        if table.label == "scaling"
        for head in (block.head for block in table.blocks)
    }
    assert {"tokens/s", "images/s"} <= heads


@pytest.mark.parametrize("name", list(DATASETS))
def test_built_in_data_has_one_unit(name):
    assert DATASETS[name].unit in (Unit.IMAGES, Unit.TOKENS)
