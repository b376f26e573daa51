"""Progress of a running cell: what rank 0 writes, and how it is extrapolated."""

import msgspec
import pytest

from hpml_jobs.status.rules import pace_of
from hpml_jobs.study.cell_folder import AttemptFolder, Progress
from hpml_jobs.worker.results import ProgressWriter

NOW = 1795279247.0
BEGAN = "2026-11-21T16:40:47+00:00"  # the same moment


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "17_0.r0"
    path.mkdir()
    return AttemptFolder(path)


def read_progress(folder):
    return msgspec.json.decode(folder.progress.read_bytes(), type=Progress)


def test_only_rank_0_writes_progress_between_epochs(folder):
    ProgressWriter(folder, 1, epochs=3).begin("timed", 2)
    assert not folder.progress.exists()
    ProgressWriter(folder, 0, epochs=3).begin("timed", 2, last_s=8.0)
    last = read_progress(folder)
    assert (last.epoch, last.epochs, last.role, last.last_s) == (2, 3, "timed", 8.0)


def test_progress_is_extrapolated_from_last_epoch():
    last = Progress(epoch=2, epochs=3, role="timed", since=BEGAN, last_s=300.0)
    pace = pace_of(last, NOW + 120)
    assert pace.doing == "epoch 2 of 3 (timed), ~40 % of it, ~8 min of training left"
    assert pace.done == pytest.approx(1.4 / 3)
    assert pace.left_s == 480
    late = pace_of(last, NOW + 590)
    assert "~99 % of it, ~5 min" in late.doing
    hanging = pace_of(last, NOW + 900)
    assert hanging.doing == "epoch 2 of 3 (timed): for 15 min, the last one took 5 min"
    assert hanging.left_s is None
    skewed = pace_of(last, NOW - 60)  # the node's clock is ahead of ours
    assert "~0 %" in skewed.doing


def test_warmup_progress_is_extrapolated_from_its_count():
    last = Progress(
        epoch=1, epochs=2, role="warmup", since=BEGAN, iteration=25, iterations=100
    )
    assert (
        pace_of(last, NOW + 10).doing
        == "epoch 1 of 2 (warmup), ~25 % of it, ~1 min of training left"
    )
    uncounted = Progress(epoch=1, epochs=2, role="warmup", since=BEGAN)
    assert pace_of(uncounted, NOW + 10) == ("epoch 1 of 2 (warmup)", 0.0, None)
