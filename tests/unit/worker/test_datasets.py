"""Every data set: length, transforms, limit, and the errors when it is missing."""

import hashlib
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR10, cifar

from hpml_jobs.core.answers import NO_TORCH_CODE
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text_data import data_digest
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker import prepare
from hpml_jobs.worker.data.datasets import (
    check_length,
    check_unchanged,
    length,
    open_data,
)
from hpml_jobs.worker.data.images import read_digits

from .conftest import SMALL_DIGITS, change_workload

CIFAR = Workload(
    name="cifar", model="digits_cnn", data="cifar10", images=50, parameters=26_154
)
FOLDER = change_workload(
    CIFAR, name="folder", data="folder", classes=2, parameters=None
)


def test_digits_match_scikit_learn(tmp_path):
    from sklearn.datasets import load_digits  # noqa: PLC0415 -- seconds

    pixels, labels = read_digits()
    expected_pixels, expected_labels = load_digits(return_X_y=True)
    assert np.array_equal(pixels, expected_pixels)
    assert np.array_equal(labels, expected_labels)


def test_digits_lengths_shapes_and_augmentation(tmp_path):
    data = open_data(change_workload(SMALL_DIGITS, limit=None), tmp_path)
    assert data.total == length(data.train) == 20_480
    assert data.test is not None
    assert length(data.test) == 297
    assert len(data.train.targets) == 1_500
    image, label = data.train[20_479]
    assert image.shape == (3, 32, 32)
    assert label in range(10)
    shifted = {data.train[0][0].sum().item() for _ in range(20)}
    assert len(shifted) > 1
    assert torch.equal(data.test[0][0], data.test[0][0])


def test_limit_is_fixed_random_subset_with_a_fifth_for_test(tmp_path):
    first = open_data(SMALL_DIGITS, tmp_path)
    again = open_data(SMALL_DIGITS, tmp_path)
    assert first.total == 20_480
    assert length(first.train) == 512
    assert length(first.test) == 102
    assert first.train.indices == again.train.indices
    assert len(set(first.train.indices)) == 512
    assert first.train.indices != sorted(first.train.indices)
    assert length(open_data(change_workload(SMALL_DIGITS, limit=3), tmp_path).test) == 1
    assert (
        length(open_data(change_workload(SMALL_DIGITS, limit=30_000), tmp_path).train)
        == 20_480
    )
    with pytest.raises(HpmlError, match=r"workload.limit=0: must be 1 or more"):
        open_data(change_workload(SMALL_DIGITS, limit=0), tmp_path)


def test_length_other_than_submitted_shows_both(tmp_path):
    data = open_data(SMALL_DIGITS, tmp_path)
    check_length(SMALL_DIGITS, data)
    with pytest.raises(
        HpmlError, match=r"has 512 training images here, .* submitted with 700"
    ):
        check_length(change_workload(SMALL_DIGITS, images=700), data)
    with pytest.raises(HpmlError, match=r"workload.images is unknown"):
        check_length(change_workload(SMALL_DIGITS, images=None), data)


def test_synthetic_data_has_requested_lengths_and_shapes(tmp_path):
    synthetic = change_workload(
        CIFAR, data="synthetic", images=1000, image_size=48, classes=7
    )
    data = open_data(synthetic, tmp_path)
    assert (length(data.train), length(data.test)) == (1000, 200)
    image, label = data.train[999]
    assert image.shape == (3, 48, 48)
    assert label < 7
    with pytest.raises(HpmlError, match=r"workload.images=N"):
        open_data(change_workload(synthetic, images=None), tmp_path)


@pytest.fixture
def little_cifar(tmp_path, monkeypatch):
    """A CIFAR-10 of 50 + 10 images in a folder, which torchvision downloads."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "made" / CIFAR10.base_folder
    folder.mkdir(parents=True)

    def write_pickle(name, content):
        path = folder / name
        path.write_bytes(pickle.dumps(content))
        return [name, hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()]

    def batch(name):
        pixels = rng.integers(0, 256, (10, 3072), dtype=np.uint8)
        return write_pickle(name, {"data": pixels, "labels": list(range(10))})

    batches = [batch(f"data_batch_{n}") for n in range(1, 6)]
    monkeypatch.setattr(CIFAR10, "train_list", batches)
    monkeypatch.setattr(CIFAR10, "test_list", [batch("test_batch")])
    name, md5 = write_pickle("batches.meta", {"label_names": list("abcdefghij")})
    meta = {"filename": name, "key": "label_names", "md5": md5}
    monkeypatch.setattr(CIFAR10, "meta", meta)

    def download(url, root, **_):
        shutil.copytree(folder, Path(root) / folder.name)

    monkeypatch.setattr(cifar, "download_and_extract_archive", download)
    return folder


def run_prepare(workload, root, *more):
    text = json.dumps({"name": "w", "model": "digits_cnn", "data": "digits"} | workload)
    return prepare.main(
        ["--workload", text, "--data-root", str(root), "--code-root", str(root), *more]
    )


def test_cifar10_is_downloaded_once(little_cifar, tmp_path, capsys):
    with pytest.raises(HpmlError, match=r"the next submission downloads it"):
        open_data(CIFAR, tmp_path / "data")
    assert (
        run_prepare({"data": "cifar10", "limit": 20}, tmp_path / "data", "--download")
        == 0
    )
    out, err = capsys.readouterr()
    counts = {
        "images": 50,
        "parameters": 26_154,
        "tokens": None,
    }
    assert json.loads(out) == counts | {"imported": []}
    assert err.startswith(f"downloading CIFAR-10 from {CIFAR10.url}")
    data = open_data(CIFAR, tmp_path / "data")
    assert (length(data.train), length(data.test)) == (50, 10)
    image, label = data.train[7]
    assert image.shape == (3, 32, 32)
    assert label == 7


def test_failed_download_is_one_line_error(little_cifar, tmp_path, capsys):
    shutil.rmtree(little_cifar)
    assert run_prepare({"data": "cifar10"}, tmp_path / "data", "--download") == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].startswith(f"cannot download CIFAR-10 from {CIFAR10.url}: ")


def test_job_refuses_other_files_than_were_submitted(tmp_path):
    for name in ("train/a/1.jpg", "train/b/2.jpg", "test/a/3.jpg", "test/b/4.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"content")
    digest = data_digest("folder", tmp_path)
    check_unchanged(change_workload(FOLDER, data_sha256=digest), tmp_path)
    check_unchanged(FOLDER, tmp_path)  # of a version before 0.9.0
    (tmp_path / "test/b/4.jpg").write_bytes(b"contents")
    with pytest.raises(HpmlError, match="changed since submission: submit again"):
        check_unchanged(change_workload(FOLDER, data_sha256=digest), tmp_path)


@pytest.fixture
def own_data(tmp_path):
    (tmp_path / "own_data.py").write_text(
        "import torch\n"
        "from torch.utils.data import TensorDataset\n"
        "def dataset(train, root=None):\n"
        "    print('reading', root)\n"
        "    number = 30 if train else 9\n"
        "    return TensorDataset(torch.zeros(number, 3, 32, 32), torch.zeros(number).long())\n"
        "def stream(train):\n"
        "    return iter([])\n"
    )
    return tmp_path


def test_prepare_counts_user_data_and_separates_its_prints(own_data, capsys):
    assert run_prepare({"data": "own_data:dataset", "limit": 12}, own_data) == 0
    out, err = capsys.readouterr()
    counts = {
        "images": 30,
        "parameters": 26_154,
        "tokens": None,
    }
    answer = json.loads(out)
    assert [file["name"] for file in answer.pop("imported")] == ["own_data.py"]
    assert answer == counts
    assert f"reading {own_data}" in err


def test_prepare_without_torch_has_its_own_exit_code(tmp_path, monkeypatch, capsys):
    def fails(*_args, **_more):
        raise ModuleNotFoundError("no such module", name="torch")

    monkeypatch.setattr(prepare, "prepare", fails)
    assert run_prepare({}, tmp_path) == NO_TORCH_CODE
    assert capsys.readouterr().err == "ModuleNotFoundError: no such module\n"


@pytest.mark.parametrize(
    ("workload", "text"),
    [
        ({"data": "own_data:stream"}, "has no __len__ or no __getitem__"),
        (
            {"data": "parts/own.py:dataset"},
            "name the module, not its file: workload.data=parts.own:dataset",
        ),
        (
            {"parameters": 5},
            "digits_cnn has 26,154 parameters, but workload.parameters is 5",
        ),
    ],
)
def test_prepare_problem_is_one_line(own_data, capsys, workload, text):
    assert run_prepare(workload, own_data) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err.strip().splitlines()[-1]
