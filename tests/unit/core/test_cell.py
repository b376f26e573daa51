"""A cell: what is refused with which words, its slug, and what its hash covers."""

import msgspec
import pytest
from msgspec.structs import replace

from hpml_jobs.core.cell import Cell, CellFile, Protocol, decode_cell_file
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.script import Script
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.workload import Workload
from hpml_jobs.study.files import encode
from tests.unit.builders import DIGITS, a_cell


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpus": 5, "nodes": 2}, "gpus=5 does not divide over nodes=2; take gpus=6"),
        ({"strategy": Strategy.SINGLE}, "strategy=single with gpus=4"),
    ],
)
def test_cell_invalid_is_refused_with_arithmetic(changes, words):
    with pytest.raises(UsageError, match=r"^[^\n]*$") as refused:
        a_cell(**changes)
    assert words in str(refused.value)


def test_field_of_a_version_before_1_0_is_in_the_name_only():
    """Of a cell with reshard=false, the hash in the name is not that of its other settings."""
    cell = a_cell(strategy=Strategy.FSDP)
    older = msgspec.to_builtins(cell) | {"reshard": True}
    assert msgspec.convert(older, Cell) == cell


def test_cell_with_replaced_workload_rechecks_batch():
    draft = a_cell(batch=9000, workload=replace(DIGITS, images=None))
    with pytest.raises(UsageError, match=r"more than the .* images of one GPU"):
        replace(draft, workload=DIGITS)


def test_processes_are_one_per_gpu_only_under_torchrun():
    assert a_cell().processes == 4
    assert a_cell(strategy=Strategy.DP).processes == 1
    assert a_cell(gpus=1, strategy=Strategy.SINGLE).processes == 1
    assert (a_cell(nodes=2).gpus_per_node, a_cell().global_batch) == (2, 2048)


def test_slug_is_readable_and_ends_in_six_hash_digits():
    assert a_cell().slug == f"ddp-4gpu-b512-digits-{a_cell().digest[:6]}"
    many = a_cell(nodes=2, seed=3, repeat=1, device=Device.CPU)
    assert many.slug == f"ddp-4proc-2nodes-b512-digits-s3-r1-{many.digest[:6]}"


def test_slug_is_a_file_name_for_any_workload_name():
    odd = a_cell(workload=replace(DIGITS, name="../My Model/№1 " + "x" * 99))
    assert odd.slug.startswith("ddp-4gpu-b512-_my_model_1_")
    assert "/" not in odd.slug
    assert len(odd.slug) < 80


def test_slug_and_hash_are_stable_across_versions():
    # A change here makes every finished cell of every study look new: it needs a new schema.
    assert a_cell().slug == "ddp-4gpu-b512-digits-1d254a"


@pytest.mark.parametrize(
    "change",
    [
        {"gpus": 2},
        {"workload": replace(DIGITS, lr=0.1)},
        {"device": Device.CPU},
        {"repeat": 1},
        {"protocol": Protocol.LAB, "epochs": 3},
        {"recipe": Recipe(name="scaled", scaled=True)},
        {"set_epoch": False},
        {"script": Script(path="train.py")},
    ],
)
def test_settings_that_affect_results_change_the_hash(change):
    assert a_cell(**change).digest != a_cell().digest
    assert a_cell(**change).slug != a_cell().slug


def test_paths_and_versions_do_not_change_the_hash():
    here = CellFile(cell=a_cell(), data_root="/a", code_root="/b")
    there = CellFile(
        cell=a_cell(), data_root="/c", code_root="/d", hpml_jobs="9", supersedes="1.r0"
    )
    assert here.cell.digest == there.cell.digest


def test_cell_file_round_trips():
    file = CellFile(
        cell=a_cell(protocol=Protocol.LAB), data_root="/data", code_root="/code"
    )
    assert decode_cell_file(encode(file), "cell.json") == file


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda text: text[: len(text) // 2],
            "cell.json cannot be read: Input data was truncated",
        ),
        (lambda text: b'{"name": "\xff"}', "cell.json cannot be read"),
        (lambda text: text.replace(b'"gpus": 4', b'"gpus": "4"'), "`$.cell.gpus`"),
        (
            lambda text: text.replace(b'"gpus": 4', b'"gpus": 0'),
            "gpus=0: use 1 or more",
        ),
        (
            lambda text: text.replace(b'"schema": 3', b'"schema": 4'),
            "cell.json has schema 4",
        ),
    ],
)
def test_invalid_cell_file_is_named_with_position(change, words):
    text = encode(CellFile(cell=a_cell(), data_root="/data", code_root="/code"))
    with pytest.raises(UsageError) as refused:
        decode_cell_file(change(text), "cell.json")
    assert str(refused.value).startswith("cell.json ")
    assert words in str(refused.value)


def test_later_keys_at_their_default_leave_hash_and_slug_unchanged():
    """A key of a later version changes the hash only where it is set to another value."""
    workload = msgspec.defstruct(
        "Workload",
        [("augment", bool, False)],
        bases=(Workload,),
        frozen=True,
        kw_only=True,
    )
    later = msgspec.defstruct(
        "Cell",
        [("precision", str, "fp32")],
        bases=(Cell,),
        frozen=True,
        kw_only=True,
    )
    now = a_cell()
    fields = msgspec.structs.asdict(now)
    fields["workload"] = workload(**msgspec.structs.asdict(now.workload))
    assert (later(**fields).digest, later(**fields).slug) == (now.digest, now.slug)
    assert later(**fields, precision="bf16").digest != now.digest
    fields["workload"] = replace(fields["workload"], augment=True)
    assert later(**fields).digest != now.digest
