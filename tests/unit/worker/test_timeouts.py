"""How long collectives wait: long until the warm-up epoch has ended, then shorter."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from hpml_jobs.core.strategies import Strategy
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
