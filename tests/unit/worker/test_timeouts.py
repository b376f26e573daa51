"""How long collectives wait: long until the warm-up epoch has ended, then shorter."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.worker import loop
from hpml_jobs.worker.process_group import Placement
from hpml_jobs.worker.strategies import STRATEGIES

from .conftest import cpu_cell


@pytest.mark.parametrize(
    ("minutes", "seconds", "is_older_torch"),
    [(10, 180, False), (10, 180, True), (1, 60, False)],
)
def test_timeout_is_shortened_but_never_extended(
    monkeypatch, minutes, seconds, is_older_torch
):
    timeouts = []
    monkeypatch.setattr(
        dist,
        "init_process_group",
        lambda _, timeout, device_id: timeouts.append(timeout),
    )
    if is_older_torch:
        monkeypatch.delattr(dist, "set_timeout", raising=False)
        monkeypatch.setattr(dist.distributed_c10d, "_set_pg_timeout", timeouts.append)
    else:
        monkeypatch.setattr(dist, "set_timeout", timeouts.append, raising=False)
    strategy = STRATEGIES[Strategy.DDP](
        cpu_cell(gpus=2), Placement(0, 0, 2), (torch.device("cpu"),)
    )
    strategy.setup(timedelta(minutes=minutes))
    strategy.shorten_timeout()
    assert timeouts == [timedelta(minutes=minutes), timedelta(seconds=seconds)]


class Recorded:
    """Whatever is called, in order."""

    def __init__(self, calls, name=""):
        self.calls, self.name = calls, name

    def __getattr__(self, name):
        return Recorded(self.calls, name)

    def __call__(self, *_, **__):
        self.calls.append(self.name)


def test_cards_are_read_and_timeout_shortened_between_epochs(monkeypatch):
    calls = []
    training = Recorded(calls)
    training.cell = cpu_cell()

    def epoch(_training, _number, role, *, count_batches=None):
        calls.append(role)
        return SimpleNamespace(epoch=SimpleNamespace(epoch_s=1.0, iterations=4))

    monkeypatch.setattr(loop, "train_epoch", epoch)
    progress = Recorded(calls)
    progress.begin = lambda *_: None
    loop.train(training, progress)
    assert calls == [Role.WARMUP, "settle", "shorten_timeout", Role.TIMED, "read"]
