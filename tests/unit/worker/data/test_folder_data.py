"""The images of a folder in a job: their order, sizes, and files that cannot be read."""

import pytest
from PIL import Image
from torchvision.datasets import ImageFolder

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker.data.datasets import length, open_data

FOLDER = Workload(
    name="folder", model="digits_cnn", data="folder", images=50, classes=2
)


def save_image(path, size):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (200, 30, 30)).save(path)


def test_folder_images_of_any_size_are_resized(tmp_path):
    for number, size in enumerate([(32, 32), (40, 60), (20, 20)]):
        save_image(tmp_path / "train" / "cat" / f"{number}.png", size)
        save_image(tmp_path / "train" / "dog" / f"{number}.jpg", size)
    data = open_data(FOLDER, tmp_path)
    assert (length(data.train), data.test) == (6, None)
    assert {data.train[n][0].shape for n in range(6)} == {(3, 32, 32)}
    save_image(tmp_path / "val" / "cat" / "9.png", (32, 32))
    with pytest.raises(
        HpmlError, match=r"val has 1 class and .*train has 2: they must"
    ):
        open_data(FOLDER, tmp_path)
    save_image(tmp_path / "val" / "dog" / "9.png", (32, 32))
    assert length(open_data(FOLDER, tmp_path).test) == 2


def test_folder_has_the_order_of_torchvision(tmp_path):
    for name in (
        "dog/2.png",
        "dog/10.JPG",
        "dog/a b/1.jpeg",
        "cat/é/3.ppm",
        "cat/z.png",
    ):
        save_image(tmp_path / "train" / name, (4, 4))
    (tmp_path / "train" / "dog" / "linked").symlink_to(tmp_path / "train" / "cat")
    (tmp_path / "train" / "dog" / "notes.txt").touch()
    samples = ImageFolder(tmp_path / "train").samples
    assert len(samples) == 7
    assert open_data(FOLDER, tmp_path).train.samples == samples
    (tmp_path / "train" / "cat" / "loop").symlink_to(tmp_path / "train")
    assert len(open_data(FOLDER, tmp_path).train.samples) > len(samples)


def test_image_that_cannot_be_read_is_named(tmp_path):
    for name in ("cat", "dog"):
        save_image(tmp_path / "train" / name / "3.png", (32, 32))
    (tmp_path / "train" / "dog" / "3.png").write_bytes(b"GIF8 and no more")
    data = open_data(FOLDER, tmp_path)
    with pytest.raises(HpmlError, match=r"^train/dog/3.png: UnidentifiedImageError: "):
        data.train[1]


def test_missing_image_folder_is_an_error(tmp_path):
    with pytest.raises(HpmlError, match="must contain train/<class>/<image>"):
        open_data(FOLDER, tmp_path)
