"""Workloads of tokens before submission: windows, parameters, and keys that do not fit."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text_data import text_files, total_bytes, windows
from hpml_jobs.plan import data
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


def test_windows_of_the_standard_library_are_counted(tmp_path):
    notes = []
    workload = with_facts(tmp_path, notify=notes.append)
    size = total_bytes(text_files("text", tmp_path).train)
    assert workload.images == windows(size, 128)
    assert f"{workload.images:,} windows of 128 tokens per epoch" in notes[0]
    assert with_facts(tmp_path, context=64).images == windows(size, 64)


def test_folder_of_text_is_counted_by_size(tmp_path):
    for part, text in (("train", "a" * 1000), ("test", "b" * 300)):
        (tmp_path / part).mkdir()
        (tmp_path / part / "a.txt").write_text(text)
    assert with_facts(tmp_path, data="text_folder", context=9).images == 111


def test_jobs_with_another_python_count_themselves(tmp_path, monkeypatch):
    """Their standard library is another one."""
    monkeypatch.setattr(Cluster, "python_command", lambda *_: ["other"])
    counts = data.Counts(images=77, parameters=None)
    monkeypatch.setattr(data, "prepare", lambda *_: counts)
    assert with_facts(tmp_path).images == 77

    def fail(*_):
        raise data.NotStartedError("no such Python")

    monkeypatch.setattr(data, "prepare", fail)
    with pytest.raises(HpmlError, match=r"no such Python, or give workload.images="):
        with_facts(tmp_path)
    assert with_facts(tmp_path, {"workload.images"}, images=500).images == 500
