"""Records of one place as an observation, by hand from their raw values."""

import msgspec
import pytest

from hpml_jobs.core.measurements import CollectiveKind, Role
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.predict.place import observation, place_of
from tests.unit.builders import a_cell, a_record


def with_unsynced_step(record, step_s):
    """The record with this median iteration in the epoch without exchange."""

    def epoch(of_rank):
        if of_rank.role != Role.UNSYNCED:
            return of_rank
        steps = msgspec.structs.replace(of_rank.steps, median_s=step_s)
        return msgspec.structs.replace(of_rank, steps=steps)

    ranks = (
        msgspec.structs.replace(rank, epochs=tuple(map(epoch, rank.epochs)))
        for rank in record.ranks
    )
    return msgspec.structs.replace(record, ranks=tuple(ranks))


def test_observation_has_medians_over_runs_per_iteration():
    runs = [
        with_unsynced_step(a_record(a_cell(repeat=r), f"{r}.r0", epoch_s), unsynced_s)
        for r, (epoch_s, unsynced_s) in enumerate(((8.0, 0.5), (9.0, 0.6), (12.0, 0.9)))
    ]
    made = observation(runs)
    iterations = 10  # 20,480 samples at batch 512 on 4
    assert (made.gpus, made.batch, made.runs) == (4, 512, 3)
    assert made.step_s == pytest.approx(9.0 / iterations)
    assert made.unsynced_s == 0.6
    assert made.stall_s == pytest.approx(0.02 * 9.0 / iterations)
    assert made.backward_s == pytest.approx(runs[1].phases.backward_s / iterations)
    assert made.exposed_s == pytest.approx(runs[1].exchange.exchange_s / iterations)
    assert made.cells == tuple(run.slug for run in runs)


def test_observation_has_gradients_but_no_buffers_of_an_iteration():
    record = a_record(a_cell())
    made = observation([record])
    (message,) = made.messages
    assert (message.kind, message.per_iteration) == (CollectiveKind.ALL_REDUCE, 1.0)
    assert message.bytes == record.model.gradient_bytes
    (sweep,) = made.sweeps
    assert sweep.times_s == record.microbenchmark.times_s


def test_observation_without_an_iteration_is_none():
    record = a_record(a_cell())
    ranks = tuple(
        msgspec.structs.replace(
            rank,
            epochs=tuple(msgspec.structs.replace(epoch, steps=None) for epoch in rank.epochs),
        )
        for rank in record.ranks
    )
    assert observation([msgspec.structs.replace(record, ranks=ranks)]) is None


def test_place_has_accumulation_apart_from_its_path():
    path = TrainingPath(precision=Precision.BF16, accumulate=4)
    place = place_of(a_cell(path=path, batch=64))
    assert (place.accumulate, place.path, place.treatment) == (4, "bf16", "bf16")
    assert place.samples == 4 * 64 * 4
