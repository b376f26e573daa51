"""The check `drift`: rare without a drift, found with one; names a measured cause."""

import random

import pytest
from msgspec.structs import replace

from hpml_jobs.results.checks.quality import speed_drifts
from hpml_jobs.worker.instruments.summary import step_percentiles
from tests.unit.check_cases import clean_record

CLEAN = clean_record()
np = pytest.importorskip("numpy")


def record_of(*steps_by_rank):
    """A record whose ranks took these seconds per iteration."""
    ranks = []
    for number, step_s in enumerate(steps_by_rank):
        rank = CLEAN.ranks[number]
        steps = step_percentiles(np.array(step_s), [1] * len(step_s))
        epochs = [replace(e, steps=steps, iterations=len(step_s)) for e in rank.epochs]
        ranks.append(replace(rank, epochs=tuple(epochs)))
    return replace(CLEAN, ranks=tuple(ranks))


def has_drift(*steps_by_rank):
    observation = speed_drifts.find(record_of(*steps_by_rank))
    return observation is not None and not observation.holds


def lognormal(rng, count, sigma, correlation=0.0):
    """Iteration times around 10 ms without a drift; correlated ones as AR(1)."""
    noise, values = rng.gauss(0, sigma), []
    for _ in range(count):
        values.append(0.01 * np.exp(noise))
        fresh = rng.gauss(0, sigma * (1 - correlation**2) ** 0.5)
        noise = correlation * noise + fresh
    return values


def ramped(steps_s, share):
    """The same times, slower by up to a share at the end of the epoch."""
    return [s * (1 + share * at / (len(steps_s) - 1)) for at, s in enumerate(steps_s)]


@pytest.mark.parametrize(
    ("iterations", "sigma", "correlation", "most"),
    [
        (40, 0.2, 0.0, 6),
        (160, 0.1, 0.9, 24),
    ],
)
def test_drift_is_rare_in_steps_without_drift(iterations, sigma, correlation, most):
    """Of 150 epochs; the rule before fired in 20 to 95 % of such epochs."""
    rng = random.Random(f"{iterations} {sigma} {correlation}")
    alarms = sum(
        has_drift(lognormal(rng, iterations, sigma, correlation)) for _ in range(150)
    )
    assert alarms <= most


def test_drift_of_15_percent_is_found():
    """Of 50 epochs with noise of 10 %."""
    rng = random.Random(160)
    found = sum(has_drift(ramped(lognormal(rng, 160, 0.1), 0.15)) for _ in range(50))
    assert found >= 35


def test_drift_ignores_a_disturbance_in_the_middle():
    steps_s = [0.01] * 40 + [0.03] * 20 + [0.01] * 40
    assert not has_drift(steps_s)


def test_drift_needs_30_iterations():
    steps_s = [0.01 * (1 + 0.01 * at) for at in range(30)]
    assert has_drift(steps_s)
    assert speed_drifts.find(record_of(steps_s[:29])) is None


def test_drift_of_ranks_is_judged_by_their_median():
    rising = [0.01 * (1 + 0.005 * at) for at in range(40)]
    flat = [0.01] * 40
    assert has_drift(rising, rising, rising, flat)
    assert not has_drift(rising, flat, flat, flat)


def test_block_medians_cover_all_iterations():
    steps_s = np.arange(1.0, 35.0)
    blocks = step_percentiles(steps_s, [1] * 34).block_medians_s
    assert len(blocks) == 10
    assert (blocks[0], blocks[-1]) == (2.5, 33.0)
    assert step_percentiles(steps_s[:9], [1] * 9).block_medians_s is None
