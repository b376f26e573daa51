"""The stand-in for a GPU: the same values as the CPU, and a GPU's errors towards the host."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def run(rank_server):
    """Return a function that runs code with the device in a process of its own."""
    words = (Path(__file__).parents[2], "tests.device.run")
    return lambda code: rank_server.run(1, *words, code, environment=os.environ)


@pytest.fixture
def printed(run):
    """Return a function that returns the words that code prints."""

    def words(code):
        ended = run(code)
        assert ended.code == 0, ended.stderr
        return ended.stdout.split()

    return words


def test_host_reads_memory_of_the_device_crashes(run):
    ended = run("""
import ctypes
tensor = torch.arange(6.0).to(gpu)
assert (tensor * 2).cpu().tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
print("there and back", flush=True)
ctypes.string_at(tensor.data_ptr(), 4)
""")
    assert (ended.stdout, ended.code) == ("there and back\n", -11)


def test_training_gives_the_parameters_of_the_cpu(printed):
    """The device does nothing before the host waits, so every result that counts is late."""
    assert printed("""
import copy
from torch import nn
standin.standin_hold(True)
layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
on_cpu = nn.Sequential(*layers)
models = {"cpu": on_cpu, gpu: copy.deepcopy(on_cpu).to(gpu)}
for place, model in models.items():
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        images, labels = torch.randn(4, 3, 8, 8).to(place), torch.randint(10, (4,)).to(place)
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
pairs = zip(on_cpu.parameters(), models[gpu].parameters(), strict=True)
print(all(torch.equal(here, there.cpu()) for here, there in pairs))
""") == ["True"]


def test_event_read_before_it_is_passed_raises(printed):
    assert printed("""
standin.standin_hold(True)
first, second = (torch.Event(gpu, enable_timing=True) for _ in range(2))
first.record()
torch.ones(3, device=gpu) + 1
second.record()
try:
    first.elapsed_time(second)
except RuntimeError:
    print(second.query())
second.synchronize()
print(second.query(), first.elapsed_time(second) >= 0)
""") == ["False", "True", "True"]


def test_work_that_waits_for_no_event_reads_old_memory(printed):
    """Without the wait between two streams the sum has the bytes of memory nobody has written."""
    assert printed("""
standin.standin_hold(True)
def summed(waits):
    side, main = torch.Stream(gpu), torch.accelerator.current_stream(gpu)
    values = torch.empty(4, device=gpu)
    main.synchronize()
    with side:
        values.fill_(1.0)
    if waits:
        main.wait_stream(side)
    return values.sum().item()
print(summed(True), summed(False))
""") == ["4.0", "nan"]
