"""Ranks that begin an epoch at different times: it begins with the last one."""

import msgspec
import numpy as np
import pytest

from hpml_jobs.core.measurements import Communication, Role
from hpml_jobs.worker.observer.together import (
    _messages_without,
    begin_together,
    early_s,
)
from hpml_jobs.worker.results import RankResult
from tests.unit.builders import a_cell, a_record

RECORD = a_record(a_cell(gpus=2))


def ranks(*windows, role=Role.TIMED):
    """Ranks of hosts, with the beginning and the end of an epoch."""
    result = []
    for number, (host, begin_s, end_s) in enumerate(windows):
        rank = RECORD.ranks[0]
        epoch = msgspec.structs.replace(
            rank.timed, role=role, epoch_s=end_s - begin_s, started_s=begin_s
        )
        result.append(
            msgspec.structs.replace(rank, rank=number, host=host, epochs=(epoch,))
        )
    return result


@pytest.mark.parametrize(
    ("windows", "waits_s"),
    [
        ([("a", 10, 20), ("a", 14, 20)], [4, 0]),
        ([("a", 10, 20), ("a", 10, 18)], [0, 0]),  # began together, and one was faster
        ([("a", 10, 20), ("b", 114, 120)], [4, 0]),  # other clocks: they end together
        (
            [("a", 10, 20), ("a", 11, 20), ("b", 112, 120), ("b", 115, 120)],
            [5, 4, 3, 0],
        ),
    ],
)
def test_epoch_begins_when_its_last_rank_begins(windows, waits_s):
    assert early_s(ranks(*windows), Role.TIMED) == pytest.approx(waits_s)


def test_wait_is_neither_in_the_epoch_nor_in_its_first_iteration():
    first, last = ranks(("a", 10, 20), ("a", 14, 20))
    times = {"stall_s": np.full(3, 0.1), "samples": np.full(3, 8)}
    early, late = begin_together(
        [
            RankResult(first, {"step_s": np.array([6.0, 2.0, 2.0]), **times}),
            RankResult(last, {"step_s": np.array([2.0, 2.0, 2.0]), **times}),
        ]
    )
    assert early.rank.timed.epoch_s == late.rank.timed.epoch_s == 6
    assert early.rank.timed.started_s == 14
    assert early.arrays["step_s"].tolist() == [2, 2, 2]
    assert early.rank.timed.steps.median_s == 2
    assert "samples" not in early.arrays


@pytest.mark.parametrize(
    ("starts_s", "durations_s", "less_s"),
    [
        ([0.05 * n for n in range(10)], [1e-3] * 10, [0.8e-3, *[0] * 9]),
        ([0.0, 0.1, 0.2, 2.0], [1.0, 1.1, 0.5, 0.9], [0.8, 0.8, 0.5, 0]),  # three queue
    ],
)
def test_messages_under_way_in_the_wait_alone_are_shorter(
    starts_s, durations_s, less_s
):
    names = "iteration", "kind", "purpose", "bytes"
    arrays = {f"collective_{name}": np.zeros(len(starts_s), int) for name in names}
    served_s = [durations_s[0], *[5e-4] * (len(starts_s) - 1)]
    for name, values in (
        ("s", durations_s),
        ("served_s", served_s),
        ("exposed_s", served_s),
    ):
        arrays[f"collective_{name}"] = np.array(values)
    arrays["collective_start_s"] = np.array(starts_s)
    total = Communication(total_s=9.0, gradients_s=9.0, buffers_s=0.0, messages=())
    _, changed = _messages_without(total, arrays, sum(less_s[:1]))
    assert np.array(durations_s) - changed["collective_s"] == pytest.approx(less_s)
    assert served_s[0] - changed["collective_served_s"][0] == pytest.approx(less_s[0])


def test_ranks_that_do_not_wait_for_each_other_stay_as_they_are():
    """Their first iteration is shorter than the wait would be."""
    times = {
        "step_s": np.array([2.0, 4.0, 4.0]),
        "stall_s": np.zeros(3),
        "samples": np.full(3, 8),
    }
    results = [RankResult(rank, times) for rank in ranks(("a", 10, 20), ("a", 14, 24))]
    early, _ = begin_together(results)
    assert early.rank.timed.epoch_s == 10


TESTS_BETWEEN = """
import os, time, torch
from torch import distributed as dist, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
layers = nn.Linear(8, 16), LAYER, nn.Linear(16, 4)
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
data = TensorDataset(torch.randn(96, 8), torch.randint(4, (96,)))
loader = DataLoader(data, 8, sampler=DistributedSampler(data))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(3):
    if NEW:
        loader = DataLoader(data, 8, sampler=DistributedSampler(data))
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == RANK:
        for inputs, _ in TESTED:
            model.module(inputs)
        time.sleep(1)
"""


# sent in the forward pass, or not at all
BUFFERS, NONE = (
    "nn.BatchNorm1d(16)",
    "nn.ReLU()",
)


@pytest.mark.long  # it decides by measured times
@pytest.mark.parametrize("tester", [0, 1])
@pytest.mark.parametrize(
    "case",
    [
        (True, "loader", BUFFERS),
        (True, "DataLoader(data, 8)", NONE),
    ],
)
def test_rank_that_tests_between_epochs(observe, case, tester):
    new, tested, layer = case
    script = TESTS_BETWEEN.replace("NEW", str(new)).replace("TESTED", tested)
    script = script.replace("LAYER", layer).replace("RANK", str(tester))
    record = observe(script, batch=8).record
    for rank in record.ranks:
        assert rank.timed.epoch_s < 1  # a test sleeps for a second
        split = rank.epoch(Role.INSTRUMENTED)
        assert split.epoch_s < 1
        assert split.phases.exposed_s < 1
        assert rank.communication.total_s < 1
        assert split.closure < 0.02
        assert all(message.busy_s < 1 for message in rank.communication.messages)
    assert record.exchange.skew_s < 1


TESTS_INSIDE = """
    steps += 1
    if steps % 4 == 1 and (EVERY or not dist.get_rank()):
        with CONTEXT:
            for inputs, _ in loader:
                network(inputs)
"""
EVAL = (
    "contextlib.nullcontext(network.eval())",
    "torch.no_grad()",
    "contextlib.nullcontext()",
)


@pytest.mark.parametrize(
    ("context", "every"), [(EVAL[0], False), (EVAL[1], True), (EVAL[2], False)]
)
def test_ranks_that_test_on_their_training_data_within_an_epoch(
    observe, context, every
):
    test = TESTS_INSIDE.replace("EVERY", str(every)).replace("CONTEXT", context)
    test = test.replace("\n", "\n    ") + "\n            network.train()\n"
    script = TESTS_BETWEEN.replace("NEW", "False").replace("LAYER", "nn.ReLU()")
    script = script.replace("    if dist.get_rank() == RANK", "    if False")
    script = script.replace("TESTED", "()").replace("range(3)", "range(4)")
    script = script.replace(
        "        optimizer.step()\n", "        optimizer.step()\n" + test
    )
    script = script.replace("for epoch", "network, steps = model.module, 0\nfor epoch")
    seen = observe("import contextlib\n" + script, batch=8)
    assert seen.code == 0, seen.stderr
    if context == EVAL[-1]:
        assert seen.reason.startswith(
            "train.py reads the loader that it trains on within an epoch"
        )
    else:
        for rank in seen.record.ranks:
            assert [epoch.iterations for epoch in rank.epochs] == [6, 6, 6]
