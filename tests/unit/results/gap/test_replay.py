"""The replay of an epoch: simulated ranks with known causes, and real runs with and without one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from hpml_jobs.core.collective_times import Begins
from hpml_jobs.results.gap.causes import SETS, GapCause, shapley
from hpml_jobs.results.gap.replay import Case, recording, replay
from tests.unit.results.gap.simulated_ranks import simulate

ITERATIONS = 40
BASE = {"forward": 0.015, "backward": 0.030, "optimizer": 0.005}


class Example(NamedTuple):
    """Ranks and what each cause changes of them; `alone` is what causes change of one process.

    `workers` are those of the loader, `always` is different in the one process.
    """

    ranks: int
    causes: dict[GapCause, Callable]
    alone: dict[GapCause, Callable] = {}
    workers: int = 0
    always: dict[str, float] = {}


def of_ranks(options, name, ranks, iterations):
    return np.array(np.broadcast_to(options.get(name, 0.0), (ranks, iterations)))


def exchange(seconds, buckets=1):
    return lambda options, *_: {"exchange": seconds, "buckets": buckets}


def late(seconds, late_ranks=(1,)):
    def change(options, ranks, iterations, _random):
        forward = of_ranks(options, "forward", ranks, iterations)
        forward[[*late_ranks]] += seconds
        return {"forward": forward}

    return change


def slow(factor, slow_ranks=(1,)):
    def change(options, ranks, iterations, _random):
        changed = {}
        for name in ("forward", "backward"):
            changed[name] = of_ranks(options, name, ranks, iterations)
            changed[name][[*slow_ranks]] *= factor
        return changed

    return change


def prefetching(period):
    return lambda *_: {"period": period}


def loading(seconds, loading_ranks=None):
    def change(options, ranks, iterations, _random):
        loads = of_ranks(options, "loading", ranks, iterations)
        loads[range(ranks) if loading_ranks is None else [*loading_ranks]] += seconds
        return {"loading": loads}

    return change


LOADER, WAITING, EXCHANGE = GapCause.LOADER, GapCause.WAITING, GapCause.EXCHANGE
EXAMPLES = {
    **{
        f"{name}, {ranks} ranks": example._replace(ranks=ranks)
        for ranks in (2, 4)
        for name, example in {
            "exchange after backward": Example(0, {EXCHANGE: exchange(0.025)}),
            "exchange, longer than backward": Example(
                0, {EXCHANGE: exchange(0.060, 6)}
            ),
            "slow rank hides its exchange": Example(
                0, {WAITING: slow(2), EXCHANGE: exchange(0.060, 6)}
            ),
            "shared disk without workers": Example(
                0,
                {LOADER: loading(0.030 * ranks), EXCHANGE: exchange(0.025)},
                {LOADER: loading(0.030)},
            ),
            "shared disk, prefetching": Example(
                0,
                {LOADER: prefetching(0.040 * ranks), EXCHANGE: exchange(0.025)},
                {LOADER: prefetching(0.040)},
                1,
            ),
            "shared disk, prefetching, late rank": Example(
                0,
                {LOADER: prefetching(0.080), WAITING: late(0.020)},
                {LOADER: prefetching(0.080 / ranks)},
                1,
            ),
            "loader of rank 0, late rank 1": Example(
                0,
                {
                    LOADER: loading(0.020, (0,)),
                    WAITING: late(0.030, (1,)),
                    EXCHANGE: exchange(0.010),
                },
            ),
        }.items()
    },
    "two of four late": Example(
        4, {WAITING: late(0.030, (1, 2)), EXCHANGE: exchange(0.010)}
    ),
    "slow single process": Example(
        2, {EXCHANGE: exchange(0.025)}, always={"forward": 0.021, "backward": 0.042}
    ),
}


def epoch_of(example, causes, *, is_single=False):
    """Simulate the ranks with some causes, or one process that does all of their work."""
    ranks = 1 if is_single else example.ranks
    iterations = ITERATIONS * example.ranks if is_single else ITERATIONS
    options = BASE | (example.always if is_single else {})
    random = np.random.default_rng(0)
    changes = example.alone if is_single else example.causes
    for cause in causes:
        if cause in changes:
            options |= changes[cause](options, ranks, iterations, random)
    return simulate(ranks, iterations, **options)


def begins(ranks):
    """Ranks that begin together, by clocks of their own."""
    return Begins([0.0] * ranks, is_one_clock=False)


def replayed_without(epoch, workers, ranks):
    """The seconds of a simulated epoch, replayed without each set of causes."""
    recorded = recording(epoch.arrays, [workers] * ranks, begins(ranks))
    compute_s = recorded.compute_s.sum(axis=1)
    cases = [Case(causes, compute_s, is_alone=False) for causes in SETS]
    return dict(zip(SETS, replay(recorded, cases), strict=True))


def speedups(example):
    """What the replay says of each set of causes, and what is true."""
    whole = epoch_of(example, example.causes)
    single = epoch_of(example, example.causes, is_single=True)
    seconds = replayed_without(whole, example.workers, example.ranks)
    single_seconds = replayed_without(single, example.workers, 1)
    said = {causes: single_seconds[causes] / seconds[causes] for causes in SETS}
    true = {}
    for causes in SETS:
        left = [cause for cause in example.causes if cause not in causes]
        alone = epoch_of(example, left, is_single=True)
        true[causes] = alone.seconds / epoch_of(example, left).seconds
    return said, true


@pytest.mark.parametrize("name", EXAMPLES)
def test_replay_without_any_causes_is_the_simulation_without_them(name):
    said, true = speedups(EXAMPLES[name])
    for causes in SETS:
        assert said[causes] == pytest.approx(true[causes], rel=0.03), causes


def test_parts_do_not_depend_on_the_numbers_of_the_ranks():
    parts = []
    for first, second in ((0, 1), (1, 0)):
        causes = {LOADER: loading(0.030, (first,)), WAITING: late(0.030, (second,))}
        said, _ = speedups(Example(2, causes | {EXCHANGE: exchange(0.010)}))
        parts.append(shapley(said, 2.0))
    assert parts[0] == pytest.approx(parts[1])
    assert parts[0][LOADER] == pytest.approx(parts[0][WAITING])
    assert sum(parts[0].values()) == pytest.approx(2.0 - said[SETS[0]])


PAIRS = Path(__file__).parents[3] / "data" / "pairs"
STUDIES = json.loads((PAIRS / "pairs.json").read_text())
"""Real studies of two processes, each also run without a cause (the link, the loader, a delay).

Recorded on a busy machine with code that sleeps, a link of 400 Mbit/s and ten to fifteen
iterations, so differences below 5 % mean nothing.
"""


def longest_s(epochs, role):
    return max(epochs_of_rank[role] for epochs_of_rank in epochs)


@pytest.mark.parametrize("name", STUDIES)
def test_replay_is_the_real_epoch_and_the_one_without_a_cause(name):
    study = STUDIES[name]
    epochs, workers = study["2"]["epochs_s"], study["2"]["loader_workers"]
    with np.load(PAIRS / f"{name}.npz") as arrays:
        recorded = recording(arrays, [workers] * 2, begins(2))
    compute_s = recorded.compute_s.sum(axis=1)
    alone_s = np.array([of_rank["unsynced"] for of_rank in epochs])
    if workers:  # how long it stalled is not in the fixture
        alone_s = compute_s
    cases = {
        "all": Case((), compute_s, is_alone=False),
        "exchange": Case({EXCHANGE}, alone_s, is_alone=True),
        "loader": Case({LOADER}, compute_s, is_alone=False),
        "late": Case({WAITING}, compute_s, is_alone=False),
    }
    seconds = dict(zip(cases, replay(recorded, [*cases.values()]), strict=True))
    assert seconds["all"] == pytest.approx(longest_s(epochs, "instrumented"), rel=0.03)
    without = {cause: study.get(f"without_{cause}", {}).get("2") for cause in cases}
    for cause, real in without.items():
        # The link of the run without exchange was fast, but it was one: its own epoch without
        # exchange is what is meant.
        role = "unsynced" if cause == "exchange" else "instrumented"
        if real:
            assert seconds[cause] == pytest.approx(longest_s(real, role), rel=0.08), (
                cause
            )
    assert any(without.values())
