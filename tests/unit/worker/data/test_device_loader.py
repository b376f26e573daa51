"""loader=device: the images of torchvision's transforms, their order, and what is refused."""

import itertools
import multiprocessing

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset
from torchvision.transforms import RandomCrop, functional

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Loader
from hpml_jobs.worker.data.datasets import Data, open_data
from hpml_jobs.worker.data.device_loading import (
    DeviceImages,
    DeviceLoader,
    DeviceLoading,
    Draws,
    below_subsets,
    check_memory,
    tensors_of,
)
from hpml_jobs.worker.data.images import MEAN, STD
from hpml_jobs.worker.epochs import evaluate, evaluate_share, train_epoch
from hpml_jobs.worker.process_group import Placement, SingleProcess
from hpml_jobs.worker.training import make_training
from tests.unit.worker.conftest import (
    SMALL_DIGITS,
    FakeCifar,
    change_workload,
    cpu_cell,
)

CPU = torch.device("cpu")
CIFAR = change_workload(SMALL_DIGITS, data="cifar10", images=40, limit=None)


def stored(images, workload=CIFAR, *, train=True):
    """Return a data set on the CPU."""
    below, items = below_subsets(images)
    on_device = DeviceImages(images, tensors_of(below, workload, train=train), items)
    on_device.store(CPU)
    return on_device


def device_cell(**settings):
    return cpu_cell(loader=Loader.DEVICE, loader_workers=0, **settings)


def torchvision_image(pixels, top, left, flip):
    """Return one image as RandomCrop, RandomHorizontalFlip, ToTensor and Normalize make it."""
    image = functional.pad(Image.fromarray(pixels), 4)
    image = functional.crop(image, top, left, 32, 32)
    image = functional.hflip(image) if flip else image
    return functional.normalize(functional.to_tensor(image), MEAN, STD)


def test_given_offsets_are_pixels_of_torchvision():
    images = FakeCifar()
    places = list(itertools.product((0, 3, 4, 8), (0, 4, 7, 8), (False, True)))
    rows = torch.arange(len(places)) % len(images)
    top, left, flip = (torch.tensor(column) for column in zip(*places, strict=True))
    draws = Draws(rows, torch.stack([top, left]), flip)
    inputs, targets = stored(images).batch(draws, 0, len(places))
    expected = [
        torchvision_image(images.data[row], *place)
        for row, place in zip(rows.tolist(), places, strict=True)
    ]
    assert torch.equal(inputs, torch.stack(expected))
    assert targets.tolist() == [images.targets[row] for row in rows.tolist()]


def chi_square(first, second):
    """Return the two-sample statistic of two tables of counts of equal sums."""
    total = first + second
    return float((((first - second) ** 2)[total > 0] / total[total > 0]).sum())


def test_offsets_and_flips_are_distributed_as_in_torchvision():
    number = 20_000
    torch.manual_seed(1)
    theirs = np.zeros((9, 9))
    image, crop = torch.zeros(3, 40, 40), RandomCrop(32)
    for _ in range(number):
        top, left, *_ = crop.get_params(image, crop.size)
        theirs[top, left] += 1
    loader = DeviceLoader(stored(FakeCifar()), number, range(0))
    loader._order = torch.zeros(number, dtype=torch.int64).tolist()
    draws = next(iter(loader)).draws
    ours = np.zeros((9, 9))
    np.add.at(ours, tuple(draws.offsets.numpy()), 1)
    assert ours.sum() == number
    # 81 pairs of offsets: 80 degrees of freedom, the 99.9 % quantile is 124.8; 8: 26.1
    assert chi_square(ours, theirs) < 124.8
    assert chi_square(ours.sum(0), theirs.sum(0)) < 26.1
    assert chi_square(ours.sum(1), theirs.sum(1)) < 26.1
    flips = draws.flip.double().mean().item()
    assert abs(flips - 0.5) < 3.3 * 0.5 / number**0.5


def test_every_epoch_and_every_image_has_its_own_draws():
    images = stored(FakeCifar())
    torch.manual_seed(0)
    loader = DeviceLoader(images, 40, range(40))
    first, second = (next(iter(loader)).draws for _ in range(2))
    assert len({tuple(column) for column in first.offsets.T.tolist()}) > 10
    assert not torch.equal(first.offsets, second.offsets)
    assert not torch.equal(first.flip, second.flip)
    torch.manual_seed(0)
    again = next(iter(DeviceLoader(images, 40, range(40)))).draws
    assert torch.equal(first.offsets, again.offsets)


def test_digits_have_the_shifts_of_their_items(tmp_path):
    data = open_data(change_workload(SMALL_DIGITS, limit=None), tmp_path)
    images = stored(data.train, SMALL_DIGITS)
    assert images.number == 1_500
    assert len(images.rows) == 20_480
    torch.manual_seed(0)
    items = [1_700] * 500
    loader = DeviceLoader(images, len(items), items)
    inputs, targets = loader.to_device(next(iter(loader)))
    theirs = {data.train[1_700][0].numpy().tobytes() for _ in range(500)}
    assert len(theirs) == 25
    assert {image.numpy().tobytes() for image in inputs} == theirs
    assert set(targets.tolist()) == {data.train[1_700][1]}


def test_test_images_are_those_of_worker_loading(tmp_path):
    data = open_data(SMALL_DIGITS, tmp_path)
    loading = DeviceLoading(device_cell(), data, CPU)
    for start, step in ((0, 1), (1, 3)):
        loader = loading.test_loader(start, step)
        ours = [loader.to_device(batch) for batch in loader]
        shares = Subset(data.test, range(start, len(data.test), step))
        theirs = list(DataLoader(shares, batch_size=SMALL_DIGITS.test_batch))
        for mine, their in zip(ours, theirs, strict=True):
            assert all(torch.equal(*pair) for pair in zip(mine, their, strict=True))
    # 512 training items are of fewer digits, and each is stored once
    assert loading._train.number + loading._test.number < 512 + 102
    for images, side in ((loading._train, 36), (loading._test, 32)):
        assert images.bytes == images.number * 3 * side * side * 4
    no_test = Data(data.train, None, data.total)
    assert DeviceLoading(device_cell(), no_test, CPU).test_loader() is None


def test_folder_is_decoded_once_to_the_pixels_of_the_items(tmp_path):
    generator = np.random.default_rng(0)
    for part, name, size in (
        ("train", "cat", 32),
        ("train", "dog", 50),
        ("test", "cat", 40),
    ):
        for number in range(3):
            path = tmp_path / part / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = generator.integers(
                0, 256, (size, size + number, 3), dtype=np.uint8
            )
            Image.fromarray(pixels).save(path)
    (tmp_path / "test" / "dog").mkdir()
    Image.new("L", (9, 9), 80).save(tmp_path / "test" / "dog" / "grey.png")
    folder = change_workload(CIFAR, data="folder", classes=2)
    data = open_data(folder, tmp_path)
    images = stored(data.test, folder, train=False)
    loader = DeviceLoader(images, 4, range(4))
    inputs, targets = loader.to_device(next(iter(loader)))
    assert torch.equal(inputs, torch.stack([data.test[index][0] for index in range(4)]))
    assert targets.tolist() == [data.test[index][1] for index in range(4)]
    assert stored(data.train, folder).pixels.shape == (6, 3, 40, 40)
    (tmp_path / "train" / "dog" / "1.png").write_bytes(b"GIF8 and no more")
    with pytest.raises(HpmlError, match=r"^train/dog/1.png: UnidentifiedImageError"):
        stored(data.train, folder)


OWN = change_workload(CIFAR, data="own:dataset")


def test_other_own_data_set_is_refused():
    words = "^loader=device with workload.data=own:dataset: list is no torch.utils.data.Tensor"
    with pytest.raises(HpmlError, match=words):
        stored(Subset([(1, 2)], [0]), OWN)


def test_images_larger_than_free_memory_are_refused():
    check_memory(device_cell(), 10, 499, 1000)
    with pytest.raises(
        HpmlError,
        match=r"loader=device: 1,000,000 images take 3.07 GB on every dev"
        r"ice, more than 50 % of the 6 GB that are free: use loader=workers, or fewer",
    ):
        check_memory(device_cell(), 10**6, 3_072_000_000, 6e9)


def training_of(cell, root):
    return make_training(cell, SingleProcess(cell, Placement(0, 0, 1), (CPU,)), root)


def test_cell_trains_the_same_order_as_with_workers(tmp_path):
    by_workers = training_of(cpu_cell(), tmp_path)
    on_device = training_of(device_cell(), tmp_path)
    assert evaluate(on_device) == evaluate(by_workers)
    share = evaluate_share(on_device)
    assert share.samples == 102
    orders = []
    for training in (by_workers, on_device):
        torch.manual_seed(3)
        epochs = [
            train_epoch(training, number, Role.TIMED).epoch for number in range(2)
        ]
        assert [epoch.samples for epoch in epochs] == [512, 512]
        orders.append([epoch.order for epoch in epochs])
    assert orders[0] == orders[1]


def test_workers_stay_and_augment_anew(tmp_path):
    training = training_of(cpu_cell(), tmp_path)
    epochs, workers = [], []
    for _ in range(2):
        train_epoch(training, 0, Role.TIMED)
        workers.append([child.pid for child in multiprocessing.active_children()])
        images = torch.cat([batch[0] for batch in training.loader])
        epochs.append(images[torch.tensor(training.order._indices).argsort()])
    assert len(workers[0]) == 1
    assert workers[0] == workers[1]
    assert not torch.equal(*epochs)
