"""Real records with a disturbed epoch or a value that is not known: what changes with it."""

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hpml_jobs.report.report import ReportOptions, make_report
from hpml_jobs.results.gap.parts import Gap
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.study.snapshot import read_snapshots
from hpml_jobs.study.study import Study

GALLERY = Path(__file__).parents[3] / "docs/gallery/cifar10.tar.gz"
BATCH = 32

Change = Callable[[dict[str, Any]], None]


def epochs_of(record: dict[str, Any], role: str) -> list[dict[str, Any]]:
    """The epochs of a role, of all ranks."""
    epochs = [epoch for rank in record["ranks"] for epoch in rank["epochs"]]
    return [epoch for epoch in epochs if epoch["role"] == role]


def disturbed(role: str, runs: int, factor: float) -> Change:
    """An epoch of the first runs with two processes takes longer; others used a CPU meanwhile."""

    def change(record: dict[str, Any]) -> None:
        if record["cell"]["gpus"] == 1 or record["cell"].get("repeat", 0) >= runs:
            return
        for epoch in epochs_of(record, role):
            epoch["epoch_s"] *= factor
            account = epoch["scheduling"]
            account["window_s"] *= factor
            account["busy_s"] += account["window_s"]

    return change


@pytest.fixture
def group_of(tmp_path: Path) -> Callable[..., ConditionGroup]:
    """Return the cells of the gallery's study at one batch, after changes of their records."""
    with tarfile.open(GALLERY) as archive:
        archive.extractall(tmp_path, filter="data")
    study = Study(tmp_path / "cifar10")

    def group(*changes: Change) -> ConditionGroup:
        for folder in study.cells():
            record = msgspec.json.decode(folder.record_json.read_bytes())
            for change in changes:
                change(record)
            folder.record_json.write_bytes(msgspec.json.encode(record))
            about = folder.attempt(record["attempt"]["id"]).about
            about.write_bytes(msgspec.json.encode(record["attempt"]))
        snapshots = read_snapshots(study.cells())
        report = make_report(study.name, snapshots, (), ReportOptions())
        return report.groups[0].source

    return group


def gap_of(group: ConditionGroup) -> Gap:
    gaps = group.gaps.items()
    (gap,) = (gap for place, gap in gaps if place.batch_per_gpu == BATCH)
    return gap


@pytest.mark.parametrize("runs", [1, 3])
def test_disturbed_epochs_without_exchange_move_no_part(runs, group_of):
    before = gap_of(group_of()).parts
    after = gap_of(group_of(disturbed("unsynced", runs, 2.0)))
    for cause, part in before.items():
        width = part.high - part.low
        assert abs(after.parts[cause].value - part.value) <= width
    assert not after.doubts_parts


def test_parts_are_marked_where_no_epoch_without_exchange_is_undisturbed(group_of):
    assert gap_of(group_of(disturbed("unsynced", 4, 2.0))).doubts_parts
