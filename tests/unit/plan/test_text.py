"""Workloads of tokens before submission: windows, parameters, and keys that do not fit."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.text_files import text_files, total_bytes, windows
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.plan import data
from hpml_jobs.plan.text import check_shape
from hpml_jobs.submit.explain import preview_of
from hpml_jobs.submit.selection import select
from tests.unit.builders import DIGITS
from tests.unit.plans import plan_of

NANO = ("workload=gpt_nano", "cluster=local", "device=cpu")


def workload_of(*overrides, batch=16, **options):
    plan = plan_of(*NANO, f"batch={batch}", *overrides, **options)
    return plan.cells[0].cell.workload


def test_windows_of_the_standard_library_are_counted(working_folder):
    notes = []
    workload = workload_of(notify=notes.append)
    size = total_bytes(text_files("text", working_folder).train)
    assert workload.images == windows(size, 128)
    (said,) = [note for note in notes if "standard library" in note]
    assert f"{workload.images:,} windows of 128 tokens per epoch" in said
    assert workload_of("workload.context=64").images == windows(size, 64)


def test_shape_determines_the_parameters(working_folder):
    assert workload_of().parameters == 224_640
    wide = workload_of("workload.width=128", "workload.layers=2", "workload.heads=8")
    assert wide.parameters == (256 + 128) * 128 + 2 * (12 * 128**2 + 13 * 128) + 2 * 128
    with pytest.raises(UsageError, match=r"parameters=7: .* of this shape has 224,640"):
        workload_of("workload.parameters=7")


def test_unit_of_the_data_is_the_same_cell_and_another_is_refused(working_folder):
    assert workload_of("+workload.unit=tokens") == workload_of()
    assert workload_of().units_per_sample == 128
    with pytest.raises(UsageError, match=r"unit=images: workload.data=text has tokens; leave"):
        workload_of("+workload.unit=images")


def test_limit_counts_windows(working_folder):
    workload = workload_of("data.limit=100")
    assert (workload.images, workload.limit) == (100, 100)


def test_folder_of_text_is_counted_by_size(working_folder):
    for part, text in (("train", "a" * 1000), ("test", "b" * 300)):
        (working_folder / part).mkdir()
        (working_folder / part / "a.txt").write_text(text)
    folder = ("workload.data=text_folder", f"data.root={working_folder}")
    assert workload_of(*folder, "workload.context=9").images == 111
    with pytest.raises(UsageError, match=r"context=300 is longer than the held-out text .*=299"):
        workload_of(*folder, "workload.context=300", batch=1)
    (working_folder / "train" / "a.txt").unlink()
    with pytest.raises(HpmlError, match=r"no files train/\*\*.txt"):
        workload_of(*folder)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["workload.width=66"], r"width=66 does not divide over workload.heads=4; .*=64 or 68"),
        (["workload.width=3"], r"does not divide .* use workload.width=4$"),
        (["workload.layers=0"], r"workload.layers=0: must be 1 or more"),
        (["workload.context=-1"], r"workload.context=-1: must be 1 or more"),
        (["workload.vocab=100"], r"vocab=100: the tokens of workload.data=text are bytes; .*=256"),
        (["workload.context=500000"], r"context=500000 is longer than the held-out text"),
        (["workload.images=50"], r"workload.images=50: workload.data=text has .* use data.limit="),
        (["workload.heads=null"], r"workload.model=gpt needs workload.heads="),
        (["workload.data=digits"], r"model=gpt with workload.data=digits: it reads tokens"),
        (["workload.model=lenet"], r"model=lenet with workload.data=text: it reads images"),
        (["channels_last=true"], r"channels_last=true with workload.data=text: tokens have no"),
        (["quantize.calibration=5"], r"quantize with workload.model=gpt: it understands lenet"),
        (["workload.data=tokens"], r"workload.data=tokens has no training windows; set .*images="),
        (["sync_buffers=off", "gpus=2"], r"sync_buffers=off with workload.model=gpt: it has no Ba"),
        (["workload.data=tokens", "workload.vocab=null"], r"model=gpt needs workload.vocab="),
    ],
)
def test_keys_that_do_not_fit_are_refused(working_folder, overrides, words):
    with pytest.raises(UsageError, match=words):
        workload_of(*overrides)


def test_image_keys_and_keys_of_the_shape_are_kept_apart(working_folder):
    """In a config of one's own a workload has both."""
    text = workload_of()
    with pytest.raises(UsageError, match=r"classes= with workload.data=text: tokens have no clas"):
        check_shape(replace(text, classes=5), {"workload.classes"})
    with pytest.raises(UsageError, match=r"workload.data=text needs workload.context="):
        check_shape(replace(text, model="own:build", context=None), ())
    with pytest.raises(UsageError, match=r"workload.width=8 with workload.model=digits_cnn: only"):
        check_shape(replace(DIGITS, width=8), ())
    own = replace(text, data="own:dataset", model="own:build", layers=None)
    check_shape(own, {"workload.classes"})


def test_jobs_with_another_python_count_themselves(working_folder, monkeypatch):
    """Their standard library is another one."""
    asked = []

    def prepare(workload, *_):
        asked.append(workload.name)
        return data.Counts(images=77, effective=77, parameters=None)

    monkeypatch.setattr(Cluster, "python_command", lambda *_: ["other"])
    monkeypatch.setattr(data, "prepare", prepare)
    assert workload_of().images == 77
    assert asked == ["gpt_nano"]

    def fail(*_):
        raise data.NotStartedError("no such Python")

    monkeypatch.setattr(data, "prepare", fail)
    with pytest.raises(HpmlError, match=r"no such Python, or give workload.images="):
        workload_of()
    assert workload_of("workload.images=500").images == 500


def test_preview_leaves_out_the_keys_of_images(working_folder):
    plan = plan_of(*NANO, "batch=16")
    values = {value.key: value.value for value in preview_of(plan, select(plan)).values}
    assert values["workload.context"] == "128"
    assert not {"workload.classes", "workload.image_size"} & set(values)
