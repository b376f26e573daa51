"""Strategies other than ddp: sharded ones by their own collectives, others where priced."""

import pytest

from hpml_jobs.core.formulas import bus_factor
from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.predict.forecast import predict
from hpml_jobs.predict.place import Observation, SentMessages, Sweep, Target

COMPUTE_S, INTERFERENCE_S, GB_PER_S = 0.050, 0.003, 10.0
SIZES = (1_000, 10_000_000, 100_000_000)

SENT = {
    Strategy.FSDP: ((CollectiveKind.ALL_GATHER, 2.0), (CollectiveKind.REDUCE_SCATTER, 1.0)),
    Strategy.ALLREDUCE_FLAT: ((CollectiveKind.ALL_REDUCE, 1.0),),
}


def message_s(kind, size, gpus):
    return bus_factor(kind, gpus) * size / (1e9 * GB_PER_S)


def exchange_s(strategy, gpus):
    return sum(times * message_s(kind, 100_000_000, gpus) for kind, times in SENT[strategy])


def step_s(strategy, gpus):
    return COMPUTE_S + (exchange_s(strategy, gpus) + INTERFERENCE_S if gpus > 1 else 0.0)


def cell(strategy, gpus):
    if gpus == 1:
        return Observation(gpus=1, batch=32, strategy=Strategy.SINGLE, step_s=COMPUTE_S)
    return Observation(
        gpus=gpus,
        batch=32,
        strategy=strategy,
        step_s=step_s(strategy, gpus),
        unsynced_s=COMPUTE_S,
        backward_s=0.6 * COMPUTE_S,
        exposed_s=exchange_s(strategy, gpus),
        messages=tuple(
            SentMessages(kind=kind, bytes=100_000_000, per_iteration=times)
            for kind, times in SENT[strategy]
        ),
        sweeps=tuple(
            Sweep(kind=kind, times_s={size: message_s(kind, size, gpus) for size in SIZES})
            for kind, _ in SENT[strategy]
        ),
    )


def predicted(cells, strategy, gpus, batch=32):
    target = Target(gpus=gpus, batch=batch, strategy=strategy)
    (made,) = predict(cells, [target])
    return made


@pytest.mark.parametrize("strategy", SENT)
def test_exchange_grows_by_the_factors_of_its_collectives(strategy):
    cells = [cell(strategy, gpus) for gpus in (1, 2, 4)]
    made = predicted(cells, strategy, 8)
    assert made.step_s == pytest.approx(step_s(strategy, 8), rel=1e-3)
    assert made.skill.model.worst < 0.001 < made.skill.null.worst


def test_gather_scatter_is_refused_for_other_sizes_but_not_batches():
    gathered = SentMessages(kind=CollectiveKind.GATHER, bytes=1_000_000, per_iteration=1.0)
    cells = [
        Observation(gpus=1, batch=b, strategy=Strategy.SINGLE, step_s=0.01 * b)
        for b in (16, 32, 64)
    ]
    cells += [
        Observation(
            gpus=2,
            batch=b,
            strategy=Strategy.GATHER_SCATTER,
            step_s=0.01 * b + 0.1,
            messages=(gathered,),
        )
        for b in (16, 32)
    ]
    assert "no gather" in predicted(cells, Strategy.GATHER_SCATTER, 4).reason
    assert predicted(cells, Strategy.GATHER_SCATTER, 2, 64).step_s == pytest.approx(0.74)
