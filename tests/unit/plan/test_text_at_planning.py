"""Workloads of tokens before submission: windows, parameters, and keys that do not fit."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.text_data import text_files, total_bytes, windows
from hpml_jobs.plan import data
from hpml_jobs.plan.rules import RULES_OF_WORKLOAD, refuse
from hpml_jobs.plan.sweep import expand
from hpml_jobs.submit.explain import preview_of
from hpml_jobs.submit.selection import select
from tests.unit.builders import NANO
from tests.unit.plans import plan_of

LOCAL = Cluster(name="local")


def with_facts(root, given=(), notify=print, **changes):
    """Return gpt_nano with these changes, counted; `given` are the keys that the user set."""
    workload = data.with_facts(replace(NANO, **changes), root, LOCAL, given, notify)
    return data.resolve_workload(workload, root, LOCAL, fetch=False, notify=notify)


def test_command_line_changes_the_shape_and_the_windows(working_folder):
    plan = plan_of(
        *(
            "workload=gpt_nano",
            "cluster=local",
            "device=cpu",
            "batch=16",
            "data.limit=100",
        ),
        *(
            "workload.width=128",
            "workload.layers=2",
            "workload.heads=8",
            "workload.context=64",
        ),
    )
    workload = plan.cells[0].cell.workload
    assert workload.shape == (2, 8, 128, 64, 256)
    assert (
        workload.parameters == (256 + 64) * 128 + 2 * (12 * 128**2 + 13 * 128) + 2 * 128
    )
    assert (workload.images, workload.limit) == (100, 100)
    values = {value.key: value.value for value in preview_of(select(plan)).values}
    assert values["workload.context"] == "64"
    assert not {"workload.classes", "workload.image_size"} & set(values)


def test_windows_of_the_standard_library_are_counted(tmp_path):
    notes = []
    workload = with_facts(tmp_path, notify=notes.append)
    size = total_bytes(text_files("text", tmp_path).train)
    assert workload.images == windows(size, 128)
    assert f"{workload.images:,} windows of 128 tokens per epoch" in notes[0]
    assert with_facts(tmp_path, context=64).images == windows(size, 64)


def test_synthetic_tokens_train_a_model_of_ones_own(working_folder):
    words = (
        "workload=custom",
        "workload.model=mygpt:build",
        "workload.data=tokens",
        "batch=2",
    )
    size = ("workload.vocab=50", "workload.context=8", "workload.images=64")
    (settings,) = expand(
        [*words, *size, "cluster=local", "device=cpu"], multirun=False
    ).settings
    refuse(RULES_OF_WORKLOAD, settings.workload)
    assert (settings.workload.vocab, settings.workload.units_per_sample) == (50, 8)
    with pytest.raises(
        UsageError, match=r"needs workload.layers=, .*; workload=gpt_nano has them"
    ):
        refuse(RULES_OF_WORKLOAD, replace(settings.workload, model="gpt"))


def test_text_without_a_window_asks_for_text(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.txt").write_text("x")
    with pytest.raises(UsageError, match=r"training text of .* \(1 bytes\); add text"):
        with_facts(tmp_path, data="text_folder", context=1)


def test_parameters_follow_from_the_shape(tmp_path):
    assert with_facts(tmp_path, parameters=7).parameters == 224_640


def test_unit_of_the_data_is_the_same_cell(working_folder):
    words = ("workload=gpt_nano", "cluster=local", "device=cpu", "batch=16")
    given, derived = plan_of(*words, "+workload.unit=tokens"), plan_of(*words)
    assert given.cells[0].cell.workload == derived.cells[0].cell.workload
    assert derived.cells[0].cell.workload.units_per_sample == 128


def test_folder_of_text_is_counted_by_size(tmp_path):
    for part, text in (("train", "a" * 1000), ("test", "b" * 300)):
        (tmp_path / part).mkdir()
        (tmp_path / part / "a.txt").write_text(text)
    assert with_facts(tmp_path, data="text_folder", context=9).images == 111
    with pytest.raises(
        UsageError, match=r"context=300 is longer than the held-out text .*=299"
    ):
        with_facts(tmp_path, data="text_folder", context=300)
    (tmp_path / "train" / "a.txt").unlink()
    with pytest.raises(HpmlError, match=r"no files train/\*\*.txt"):
        with_facts(tmp_path, data="text_folder")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"context": 500_000}, r"context=500000 is longer than the held-out text"),
        ({"data": "tokens", "vocab": None}, r"model=gpt needs workload.vocab="),
        ({"classes": 5}, r"classes= with workload.data=text: tokens have no classes"),
        ({"context": None}, r"workload.model=gpt needs workload.context="),
        (
            {"model": "lenet", "padded_vocab": 300},
            r"padded_vocab=300 with workload.model=lenet: only",
        ),
    ],
)
def test_keys_that_do_not_fit_are_refused(tmp_path, changes, words):
    with pytest.raises(UsageError, match=words):
        with_facts(tmp_path, {f"workload.{key}" for key in changes}, **changes)


def test_model_of_the_user_needs_no_shape():
    own = replace(NANO, data="own:dataset", model="own:build", layers=None)
    refuse(RULES_OF_WORKLOAD, own)


def test_jobs_with_another_python_count_themselves(tmp_path, monkeypatch):
    """Their standard library is another one."""
    monkeypatch.setattr(Cluster, "python_command", lambda *_: ["other"])
    counts = data.Counts(images=77, effective=77, parameters=None)
    monkeypatch.setattr(data, "prepare", lambda *_: counts)
    assert with_facts(tmp_path).images == 77

    def fail(*_):
        raise data.NotStartedError("no such Python")

    monkeypatch.setattr(data, "prepare", fail)
    with pytest.raises(HpmlError, match=r"no such Python, or give workload.images="):
        with_facts(tmp_path)
    assert with_facts(tmp_path, {"workload.images"}, images=500).images == 500
