"""Data of tokens: windows and targets, held-out text, a folder of text, synthetic tokens."""

import hashlib
from collections import Counter
from math import log2

import pytest
import torch

from hpml_jobs.core import text_data as files_of_text
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Loader
from hpml_jobs.core.text_data import TextFiles
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker.data.datasets import check_length, open_data
from hpml_jobs.worker.data.text import TokenWindows, describe_text
from hpml_jobs.worker.epochs import evaluate, train_epoch
from hpml_jobs.worker.process_group import Placement, SingleProcess
from hpml_jobs.worker.training import make_training
from tests.unit.worker.conftest import change_workload, cpu_cell

SHAPE = {"layers": 1, "heads": 2, "width": 8, "context": 8, "vocab": 256}
TEXT = Workload(
    name="text", model="gpt", data="text_folder", lr=0.1, test_batch=3, **SHAPE
)
TRAIN = b"the cat sat on the mat. the dog lay on the log. "
TEST = b"the cat lay on the log. and the dog sat."


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train" / "more").mkdir(parents=True)
    (tmp_path / "train" / "b.txt").write_bytes(TRAIN[10:30])
    (tmp_path / "train" / "a.txt").write_bytes(TRAIN[:10])
    (tmp_path / "train" / "more" / "c.txt").write_bytes(TRAIN[30:])
    (tmp_path / "train" / "notes.md").write_bytes(b"no text of the data set")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "a.txt").write_bytes(TEST)
    return tmp_path


def text_of(windows):
    return b"".join(bytes(inputs.tolist()) for inputs, _ in windows)


def test_windows_do_not_overlap_and_targets_are_one_later():
    windows = TokenWindows(torch.arange(10, dtype=torch.uint8), context=3)
    assert [
        (a.tolist(), b.tolist()) for a, b in (windows[n] for n in range(len(windows)))
    ] == [
        ([0, 1, 2], [1, 2, 3]),
        ([3, 4, 5], [4, 5, 6]),
        ([6, 7, 8], [7, 8, 9]),
    ]
    assert windows[0][0].dtype is torch.int64
    # the last one lacks a target
    assert len(TokenWindows(torch.arange(9), context=3)) == 2


def test_folder_is_read_in_order_of_names(folder):
    data = open_data(TEXT, folder)
    assert text_of(data.train[n] for n in range(5)) == TRAIN[:40]
    assert (len(data.train), len(data.test), data.total) == (5, 4, 5)
    text = describe_text(TEXT, data.train, data.test)
    assert text.sha256 == hashlib.sha256(TRAIN + TEST).hexdigest()
    assert (text.train_bytes, text.test_bytes) == (len(TRAIN), len(TEST))
    counts = Counter(TEST[1:33])  # what is tested: the targets of 4 windows
    expected = -sum(n / 32 * log2(n / 32) for n in counts.values())
    assert text.unigram_bits_per_byte == pytest.approx(expected)


def test_folder_without_test_text_has_no_held_out_windows(folder):
    (folder / "test" / "a.txt").unlink()
    with pytest.raises(
        HpmlError, match=r"no files test/\*\*.txt: add held-out text, or remove"
    ):
        open_data(TEXT, folder)
    (folder / "test").rmdir()
    data = open_data(TEXT, folder)
    assert data.test is None
    text = describe_text(TEXT, data.train, data.test)
    assert (text.test_bytes, text.unigram_bits_per_byte) == (0, None)


def test_another_python_has_other_text(folder, monkeypatch):
    files = files_of_text.text_files("text_folder", folder)
    monkeypatch.setattr(files_of_text, "_standard_library", lambda: TextFiles(*files))
    workload = change_workload(TEXT, data="text", images=5)
    check_length(workload, open_data(workload, folder))
    changed = change_workload(workload, images=6)
    with pytest.raises(
        HpmlError, match=r"has 5 training windows here, .* with 6: another Python"
    ):
        check_length(changed, open_data(changed, folder))


def test_synthetic_tokens_repeat_and_are_of_the_vocabulary(tmp_path):
    workload = change_workload(TEXT, data="tokens", images=600, vocab=7)
    data = open_data(workload, tmp_path)
    assert (len(data.train), len(data.test)) == (600, 120)
    inputs, targets = data.train[0]
    assert torch.equal(data.train[256][0], inputs)
    assert inputs.shape == targets.shape == (8,)
    tokens = torch.cat([data.train[n][0] for n in range(256)])
    assert set(tokens.tolist()) == set(range(7))
    assert describe_text(workload, data.train, data.test) is None
    with pytest.raises(HpmlError, match=r"set workload.images=N and workload.vocab=V"):
        open_data(change_workload(workload, images=None), tmp_path)


def trained(folder, **settings):
    """Return a training after one epoch, the epoch, and its test."""
    cell = cpu_cell(change_workload(TEXT, images=5), batch=2, **settings)
    strategy = SingleProcess(cell, Placement(0, 0, 1), (torch.device("cpu"),))
    training = make_training(cell, strategy, folder)
    result = train_epoch(training, 0, Role.TIMED)
    return training, result, evaluate(training)


def test_every_loader_and_path_trains_the_same(folder):
    """The same windows in the same order, and in one epoch almost the same loss."""
    _, plain, tested = trained(folder, loader_workers=0)
    assert tested.accuracy is None
    assert tested.samples == 4
    others = {
        "device": trained(folder, loader=Loader.DEVICE, loader_workers=0),
        "bf16": trained(
            folder, loader_workers=0, path=TrainingPath(precision=Precision.BF16)
        ),
    }
    for name, (_, result, test) in others.items():
        tolerance = 1e-6 if name == "device" else 0.02
        assert result.epoch.order == plain.epoch.order
        assert result.epoch.loss == pytest.approx(plain.epoch.loss, rel=tolerance), name
        assert test.loss == pytest.approx(tested.loss, rel=tolerance), name
    loading = others["device"][0].loading
    sets = (loading._train, loading._test)
    assert sum(images.number for images in sets) == 9
    assert sum(images.bytes for images in sets) == 9 * 2 * 8 * 8
