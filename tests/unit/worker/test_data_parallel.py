"""DataParallel, instrumented, on scripted GPUs: waits for replicas are not communication."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.phases import split_phases
from hpml_jobs.worker.instruments.recorder import IterationMarks
from hpml_jobs.worker.instruments.timing import DeviceClock, Window
from hpml_jobs.worker.instruments.wrappers import InstrumentedDataParallel

GPUS = tuple(torch.device("cuda", number) for number in range(2))


class Streams:
    """The streams of two GPUs, in milliseconds; events may be read at any time."""

    def __init__(self):
        self.until_ms = dict.fromkeys(GPUS, 0.0)

    def work(self, device, milliseconds):
        self.until_ms[device] += milliseconds


class Stream:
    def __init__(self, streams, device):
        self.streams, self.device = streams, device

    def wait_event(self, event):
        until_ms = self.streams.until_ms
        until_ms[self.device] = max(until_ms[self.device], event.at_ms)


class Event:
    def __init__(self, streams):
        self.streams = streams

    def record(self, stream=None):
        self.at_ms = self.streams.until_ms[stream.device if stream else GPUS[0]]

    def elapsed_time(self, other):
        return other.at_ms - self.at_ms


class Broadcast(torch.autograd.Function):
    """Makes the replica's parameters; backward adds the gradients on the first GPU, 6 ms."""

    @staticmethod
    def forward(context, parameter, streams):
        context.streams = streams
        return parameter.clone()

    @staticmethod
    def backward(context, gradient):
        context.streams.work(GPUS[0], 6.0)
        return gradient, None


@pytest.fixture
def streams(monkeypatch):
    streams = Streams()
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing=False: Event(streams))
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda device: Stream(streams, device)
    )
    return streams


def replicated(streams):
    """Return a replicate() of two modules, whose copy of the parameters takes 3 ms."""

    def replicate(_self, module, _device_ids):
        streams.work(GPUS[0], 3.0)
        replica = nn.Linear(2, 1)
        replica._former_parameters = {"weight": Broadcast.apply(module.weight, streams)}
        return [module, replica]

    return replicate


def gathered(streams):
    """Return a gather() of outputs, which takes 4 ms."""

    def gather(_self, outputs, _output_device):
        streams.work(GPUS[0], 4.0)
        return torch.cat(outputs)

    return gather


def test_waits_for_other_replicas_are_apart_from_gather_and_reduce(
    streams, monkeypatch
):
    monkeypatch.setattr(nn.DataParallel, "replicate", replicated(streams))
    monkeypatch.setattr(nn.DataParallel, "gather", gathered(streams))
    clock = DeviceClock(GPUS)
    strategy = SimpleNamespace(ledger=Ledger(clock))
    wrapper = InstrumentedDataParallel(nn.Linear(2, 1), [0, 1], strategy)
    window = Window(clock, lambda: None)
    window.start = begin = clock.stamp()
    module, replica = wrapper.replicate(wrapper.module, [0, 1])
    weight = replica._former_parameters["weight"]
    # the other one is later
    for device, milliseconds in zip(GPUS, (10.0, 17.0), strict=True):
        streams.work(device, milliseconds)
    outputs = wrapper.gather(
        [module(torch.ones(1, 2)), torch.ones(1, 2) @ weight.t()], 0
    )
    forward = clock.stamp()
    streams.work(GPUS[0], 20.0)
    streams.until_ms[GPUS[1]] = streams.until_ms[GPUS[0]] + 9.0  # later again, by 9 ms
    outputs.sum().backward()
    backward = clock.stamp()
    window.end = clock.stamp()
    marks = IterationMarks(begin, begin, forward, backward, backward, backward)
    phases = split_phases(window, [marks], strategy.ledger, overlaps=False).phases
    # 17 - 3 - 10 in forward
    assert phases.replicas_s == pytest.approx(1e-3 * (4.0 + 9.0))
    assert phases.comm_forward_s == pytest.approx(1e-3 * (3.0 + 4.0))
    assert phases.comm_exposed_s == pytest.approx(1e-3 * 6.0)
    assert phases.forward_s == pytest.approx(1e-3 * (3.0 + 10.0 + 4.0 + 4.0))
    assert phases.backward_s == pytest.approx(1e-3 * (20.0 + 9.0))
    kinds = [(entry.kind.value, entry.bytes) for entry in strategy.ledger.collectives]
    assert kinds == [("broadcast", 12), ("gather", 4), ("reduce", 12)]
