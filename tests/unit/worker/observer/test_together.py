"""Ranks that begin an epoch at different times: it begins with the last one."""

import msgspec
import numpy as np
import pytest

from hpml_jobs.core.measurements import Communication, Phases, Role
from hpml_jobs.worker.observer.together import COLUMNS, begin_together
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


def results_of(*of_ranks):
    """Results of ranks: when each begins and ends the epoch, and its iterations."""
    windows = [("a", begin_s, end_s) for begin_s, end_s, _ in of_ranks]
    times = {"stall_s": np.full(3, 0.1), "samples": np.full(3, 8)}
    return [
        RankResult(rank, {"step_s": np.array(step_s), **times})
        for rank, (*_, step_s) in zip(ranks(*windows), of_ranks, strict=True)
    ]


def test_wait_is_neither_in_the_epoch_nor_in_its_first_iteration():
    early, late = begin_together(
        results_of((10, 20, [6.0, 2.0, 2.0]), (14, 20, [2.0, 2.0, 2.0]))
    )
    assert early.rank.timed.epoch_s == late.rank.timed.epoch_s == 6
    assert early.rank.timed.started_s == 14
    assert early.arrays["step_s"].tolist() == [2, 2, 2]
    assert early.rank.timed.steps.median_s == 2
    assert "samples" not in early.arrays


@pytest.mark.parametrize(
    "step_s",
    [
        [2.0, 2.0, 6.0],  # it ends later
        [6.0, 1.0, 3.0],  # others wait for it in their second iteration
    ],
)
def test_rank_that_does_not_wait_stays_as_it_is(step_s):
    others = [2.0, 4.0, 4.0] if step_s[0] == 6 else [2.0, 2.0, 2.0]
    results = results_of((10, 20, step_s), (10, 10 + sum(others), others))
    first, _ = begin_together(results)
    assert first.rank.timed.epoch_s == 10
    assert first.arrays["step_s"].tolist() == step_s


def split_result(rank, step_s, exposed_s, served_s):
    """The result of an instrumented epoch of two iterations, with a message in each."""
    parts_s = np.zeros((2, len(COLUMNS)))
    parts_s[:, COLUMNS.index("backward_s")] = np.array(step_s) - exposed_s
    for name in ("comm_exposed_s", "comm_total_s", "gradients_s"):
        parts_s[:, COLUMNS.index(name)] = exposed_s
    phases = Phases(
        stall_s=0.0,
        h2d_s=0.0,
        forward_s=0.0,
        backward_s=sum(step_s) - sum(exposed_s),
        comm_exposed_s=sum(exposed_s),
        optimizer_s=0.0,
    )
    epoch = msgspec.structs.replace(rank.epochs[0], phases=phases)
    sent = Communication(
        total_s=sum(exposed_s), gradients_s=sum(exposed_s), buffers_s=0.0, messages=()
    )
    times = {
        f"collective_{name}": np.array(served_s)
        for name in ("s", "served_s", "exposed_s")
    }
    arrays = {
        "parts_s": parts_s,
        "stall_s": np.zeros(2),
        "parts_samples": np.full(2, 8),
        "collective_iteration": np.arange(2),
        "collective_start_s": np.ones(2),
        **times,
    }
    rank = msgspec.structs.replace(rank, epochs=(epoch,), communication=sent)
    return RankResult(rank, arrays)


def test_first_iteration_has_the_parts_of_the_rank_that_begins_last():
    first, second = ranks(("a", 10, 20), ("a", 14, 20), role=Role.INSTRUMENTED)
    early, late = begin_together(
        [
            split_result(first, [7.0, 3.0], [5.0, 1.0], [5.0, 1.0]),
            split_result(second, [3.0, 3.0], [1.0, 1.0], [1.0, 1.0]),
        ]
    )
    epoch = early.rank.epochs[0]
    assert (epoch.epoch_s, epoch.closure) == (6, 0)
    assert (epoch.phases.comm_exposed_s, epoch.phases.backward_s) == (2, 4)
    assert early.rank.communication.total_s == 2
    for name, values in late.arrays.items():
        assert early.arrays[name].tolist() == values.tolist()


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
