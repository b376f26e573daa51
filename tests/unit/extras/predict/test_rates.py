"""Predictions from times of iterations alone: known truths, marks, refusals."""

import math
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.place import Place, Setup
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.extras.predict.forecast import Method, Prediction, Refusal, predict
from hpml_jobs.extras.predict.place import MeasuredPlace, Target
from hpml_jobs.extras.predict.question import Question
from hpml_jobs.extras.predict.rates import GROWTH, in_node, over_nodes
from hpml_jobs.extras.predict.rules import forecast, observation
from hpml_jobs.extras.predict.table import predictions
from hpml_jobs.report.report import make_report
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.rows import make_rows
from hpml_jobs.study.snapshot import read_snapshots
from hpml_jobs.study.study import Study

csv_records = pytest.importorskip("hpml_jobs.extras.exchange.csv_records")


def place(gpus, batch=32, nodes=1):
    strategy = Strategy.DDP if gpus > 1 else Strategy.SINGLE
    return Place(Setup(gpus, nodes, strategy), batch)


def measured(gpus, step_s, **fields):
    return MeasuredPlace(place=place(gpus, **fields), step_s=step_s)


def target(gpus, **fields):
    return Target(place=place(gpus, **fields))


def series(times_s, **fields):
    """Return observations in a node by GPUs."""
    return [measured(gpus, step_s, **fields) for gpus, step_s in times_s.items()]


def predicted(observations, gpus, **fields):
    (result,) = predict(observations, [target(gpus, **fields)])
    assert isinstance(result, Prediction), result.reason
    assert result.low_s < result.step_s < result.high_s
    return result


def refusal(observations, gpus, **fields):
    (result,) = predict(observations, [target(gpus, **fields)])
    assert isinstance(result, Refusal)
    return result.reason


def ring(gpus, latency_s=0.0):
    """Return 100 ms of computation with the all-reduce of a ring, in seconds."""
    return 0.1 + 0.02 * (gpus - 1) / gpus + latency_s * (gpus - 1)


RING = {gpus: ring(gpus) for gpus in (1, 2, 4)}


# ---- in a node ----


@pytest.mark.parametrize("latency_s", [0.0, 0.0004, 0.003])
def test_ring_in_a_node_is_recovered(latency_s):
    prediction = predicted(series({n: ring(n, latency_s) for n in (1, 2, 4)}), 8)
    assert prediction.step_s == pytest.approx(ring(8, latency_s))
    assert prediction.null_s == ring(4, latency_s)
    assert prediction.method is Method.MODEL


def test_size_between_measured_ones_is_between_their_times():
    assert RING[2] < in_node(RING, 3).step_s < RING[4]
    assert 0.1 < in_node({1: 0.1, 8: 0.12}, 4).step_s < 0.12


def test_time_that_does_not_level_off_is_marked():
    (remark,) = predicted(series({1: 1.0, 2: 1.025, 4: 1.049}), 8).remarks
    assert "does not level off up to 4 GPUs: 2.83 % of this time" in remark
    assert predicted(series(RING), 8).remarks == ()


def test_time_that_falls_is_marked():
    prediction = predicted(series({1: 1.0, 2: 1.2, 4: 1.14}), 8)
    assert prediction.remarks == (
        "an iteration on 4 GPUs took 5.0% less than on 2: repeat both",
    )


@pytest.mark.parametrize("growth", [1.0, 1.05, 1.2, 1.5])
@pytest.mark.parametrize("count", [2, 3])
def test_band_holds_no_change_and_the_same_loss_at_each_doubling(growth, count):
    """A few sizes rule out neither, in a node and across nodes."""
    sizes = [2**doubling for doubling in range(count)]
    times_s = {size: growth**n for n, size in enumerate(sizes)}
    (in_node,) = predict(series(times_s), [target(2 * sizes[-1])])
    across_nodes = [
        measured(8 * size, step_s, nodes=size) for size, step_s in times_s.items()
    ]
    (across,) = predict(across_nodes, [target(16 * sizes[-1], nodes=2 * sizes[-1])])
    for prediction in (in_node, across):
        assert prediction.low_s < growth ** (count - 1)
        assert prediction.high_s > growth**count


def test_last_growth_across_nodes_is_the_least_one_assumed():
    growing = {1: 1.0, 2: 1.06, 4: 1.12, 8: 1.25}
    cells = [
        measured(8 * nodes, step_s, nodes=nodes) for nodes, step_s in growing.items()
    ]
    (prediction,) = predict(cells, [target(128, nodes=16)])
    assert prediction.step_s >= 1.25 * 1.25 / 1.12


def test_band_contains_growth_by_doublings_where_time_does_not_level_off():
    prediction = predicted(series({1: 0.031, 2: 0.039, 4: 0.079}), 8)
    assert prediction.step_s > 0.12
    assert prediction.low_s < 0.1


def test_two_sizes_up_to_four_gpus_follow_a_ring_and_say_so():
    prediction = predicted(series({1: ring(1), 4: ring(4)}), 8)
    assert prediction.step_s == pytest.approx(ring(8))
    assert prediction.remarks == (
        "two sizes cannot show whether the time levels off, as it is taken to: measure a third",
    )


def test_two_sizes_up_to_two_gpus_give_no_change_and_say_so():
    prediction = predicted(series({1: 1.0, 2: 1.2}), 8)
    assert (prediction.method, prediction.step_s) == (Method.NULL, 1.2)
    assert prediction.remarks == (
        "two sizes up to 2 GPUs show no trend: this is the time on 2 GPUs",
        "4 times the largest measured number of GPUs",
    )


def test_left_out_sizes_are_those_that_the_model_predicts():
    """4 GPUs from 1 and 2 are no test of a fit that needs three sizes."""
    observations = [o for batch in (8, 16, 32) for o in series(RING, batch=batch)]
    prediction = predicted(observations, 8)
    assert (prediction.method, prediction.skill) == (Method.MODEL, None)
    larger = [*observations, measured(8, ring(8), batch=8)]
    assert [
        p.observation.gpus for p in predicted(larger, 16, batch=8).skill.points
    ] == [8]


def test_null_is_shown_where_it_is_as_good_on_three_places():
    flat = {n: 0.1 if n == 1 else 0.11 for n in (1, 2, 4, 8, 16, 32)}
    observations = [o for b in (8, 16) for o in series(flat, batch=b)]
    prediction = predicted(observations, 64, batch=8)
    assert prediction.skill.is_null_better
    assert (prediction.method, prediction.step_s) == (Method.NULL, 0.11)
    assert prediction.model_s > 0.11


# ---- across nodes ----


def whole_nodes(times_s, **fields):
    return [measured(8 * n, step_s, nodes=n, **fields) for n, step_s in times_s.items()]


def test_two_nodes_grow_as_published_and_say_so():
    prediction = predicted(whole_nodes({1: 1.0, 2: 1.3}), 32, nodes=4)
    assert prediction.step_s == pytest.approx(1.3 * (1 + GROWTH))
    assert (
        "growth beyond 2 nodes is that of published benchmarks" in prediction.remarks[0]
    )


def test_band_contains_a_step_to_two_nodes_that_goes_on():
    prediction = predicted(whole_nodes({1: 1.0, 2: 1.3}), 32, nodes=4)
    assert prediction.high_s > 1.6
    assert predicted(whole_nodes({1: 1.0, 2: 1.3, 4: 1.3}), 64, nodes=8).high_s < 1.6


def test_many_node_counts_outweigh_the_published_growth():
    times_s = {n: 1.0 + 0.06 * math.log2(n) for n in (1, 2, 4, 8, 16)}
    assert over_nodes(times_s, 32).step_s == pytest.approx(1.3, rel=0.02)
    assert over_nodes(times_s, 32).remarks == ()


def test_band_widens_with_the_distance():
    observations = whole_nodes({1: 1.0, 2: 1 + GROWTH})
    factors = [
        math.log(p.high_s / p.step_s)
        for p in (predicted(observations, 8 * n, nodes=n) for n in (4, 8, 32))
    ]
    assert factors[1] == pytest.approx(2 * factors[0], rel=0.01)
    assert factors[2] == pytest.approx(4 * factors[0], rel=0.01)
    assert "4 times the largest measured number of nodes" in (
        predicted(observations, 64, nodes=8).remarks
    )


def test_node_border_without_two_nodes_is_refused():
    assert refusal(series({1: 1.0, 2: 1.1, 4: 1.1, 8: 1.1}), 16, nodes=2) == (
        "no cell on two nodes is measured, and one node says nothing about a network: "
        "measure gpus=16 nodes=2 batch=32"
    )
    assert "no cell on two nodes with 4 GPUs on each is measured" in (
        refusal(whole_nodes({1: 1.0, 2: 1.1}), 16, nodes=4)
    )


# ---- another batch ----


def test_another_batch_adds_what_more_gpus_cost_there():
    observations = [
        measured(8, 0.20, batch=32),
        *whole_nodes({1: 0.40, 2: 0.43}, batch=64),
    ]
    prediction = predicted(observations, 16, nodes=2)
    assert prediction.step_s == pytest.approx(0.23)
    assert prediction.null_s == 0.20


def test_large_cost_of_another_batch_is_marked_and_its_band_wider():
    """A cost that is in proportion to the batch is outside the fit, but in the band."""
    large = [measured(8, 0.20), *whole_nodes({1: 0.40, 2: 0.56}, batch=64)]
    prediction = predicted(large, 16, nodes=2)
    assert prediction.step_s == pytest.approx(0.36)
    assert prediction.low_s < 0.20 * 0.56 / 0.40
    assert prediction.remarks == (
        "what more GPUs cost is taken over from batch 64 in seconds: if it is in proportion to the "
        "batch, this time is 22.22 % shorter: measure 16 GPUs at batch 32",
    )
    small = [measured(8, 0.20), *whole_nodes({1: 0.40, 2: 0.41}, batch=64)]
    assert predicted(small, 16, nodes=2).remarks == ()


def test_large_cost_of_a_smaller_batch_may_be_longer():
    observations = [measured(8, 0.40, batch=64), *whole_nodes({1: 0.20, 2: 0.28})]
    prediction = predicted(observations, 16, batch=64, nodes=2)
    assert prediction.high_s > 0.40 * 0.28 / 0.20
    assert (
        "this time is 16.67 % longer: measure 16 GPUs at batch 64"
        in prediction.remarks[0]
    )


def test_nearest_batch_with_the_size_is_taken():
    observations = [measured(8, 0.2, batch=32)]
    for batch, cost_s in ((16, 0.05), (64, 0.03), (256, 0.0)):
        observations += whole_nodes(
            {1: batch / 160, 2: batch / 160 + cost_s}, batch=batch
        )
    assert predicted(observations, 16, nodes=2).step_s == pytest.approx(0.23)


def test_more_nodes_at_another_batch_take_two_steps():
    observations = [measured(8, 0.20), *whole_nodes({1: 0.40, 2: 0.44}, batch=64)]
    far = predicted(observations, 32, nodes=4)
    assert far.step_s == pytest.approx(0.20 + 0.44 * (1 + GROWTH) - 0.40)
    near = predicted(observations, 16, nodes=2)
    assert far.high_s / far.step_s > near.high_s / near.step_s


def test_skill_is_of_places_left_out_along_the_same_way():
    observations = [
        o for b in (32, 64) for o in whole_nodes({1: b, 2: b + 1, 4: b + 2}, batch=b)
    ]
    skill = predicted(observations[:-1], 32, batch=64, nodes=4).skill
    assert [(p.observation.gpus, p.observation.batch) for p in skill.points] == [
        (16, 32),
        (16, 64),
    ]
    assert skill.model.worst == pytest.approx(0)
    assert skill.null.worst == pytest.approx(1 / 33)


# ---- what cannot be predicted ----


def test_one_size_is_refused():
    assert refusal(series({1: 1.0}), 8) == (
        "one size is measured at batch 32, which does not show how time grows: "
        "measure gpus=2 batch=32"
    )


def test_batch_without_a_smaller_size_is_refused():
    assert (
        "nothing smaller than 8 GPUs is measured at batch 48: measure gpus=1 batch=48"
        in (refusal(series(RING), 8, batch=48))
    )
    assert "12 GPUs cannot be shared equally by 5 nodes" in refusal(
        series(RING), 12, nodes=5
    )


def test_one_cell_at_one_batch_is_named_for_all_batches():
    cells = [o for batch in (32, 64) for o in series(RING, batch=batch)]
    targets = [target(8, batch=batch, nodes=2) for batch in (32, 64)]
    reasons = {refused.reason for refused in predict(cells, targets)}
    assert [reason.rpartition(": ")[2] for reason in reasons] == [
        "measure gpus=8 nodes=2 batch=32"
    ]
    cells.append(measured(8, ring(8), nodes=2))
    (made,) = predict(cells, targets[1:])
    assert isinstance(made, Prediction)


# ---- imported rows ----


def steps_of(text, **rules):
    (record,) = csv_records.read_timings(
        text.encode(), "rates.csv", csv_records.Rules(**rules)
    )
    cell = CellResult(
        slug=record.slug, cell=record.cell, record=record, outcome=Outcome.OK
    )
    (row,) = make_rows([cell])
    made = observation(row, [record.slug], is_imported=True)
    return [made and made.step_s]


def test_imported_rates_and_epochs_are_times_of_an_iteration():
    assert steps_of("gpus,batch,rate\n4,32,640\n", unit="images/s") == [0.2]
    assert steps_of("gpus,batch,rate\n4,32,640\n", unit="tokens/s") == [
        pytest.approx(0.2)
    ]
    assert steps_of("gpus,batch,rate\n4,32,0.2\n", unit="s/iteration") == [0.2]
    assert steps_of("gpus,batch,epoch_s\n4,32,2\n", images=1280) == [pytest.approx(0.2)]
    assert steps_of("gpus,batch,epoch_s\n4,32,2\n") == [None]


# ---- a study of imported rows ----

TXL = "gpus,gpus_per_node,batch,rate\n8,8,4,40000\n16,8,4,78000\n32,8,4,150000\n8,8,8,60000\n"


def forecast_of(text, **question):
    Path("rates.csv").write_text(text)
    assert run(["import", "rates.csv", "study=rates", "unit=tokens/s"]) == 0
    study = Study(Path("outputs") / "rates")
    (group,) = make_report(study.name, read_snapshots(study.cells()), ()).groups
    return forecast(group.source, question=Question(**question))


def test_imported_study_is_predicted_from_its_rates(working_folder):
    made = forecast_of(TXL, gpus=(64,))
    by_batch = {p.target.batch: p for p in made.predictions}
    assert [(p.target.gpus, p.target.nodes) for p in by_batch.values()] == [(64, 8)] * 2
    expected = over_nodes({1: 8 * 4 / 40e3, 2: 16 * 4 / 78e3, 4: 32 * 4 / 150e3}, 8)
    assert by_batch[4].step_s == pytest.approx(expected.step_s)
    assert by_batch[4].samples_per_s == pytest.approx(64 * 4 / expected.step_s)
    assert by_batch[8].null_s == pytest.approx(8 * 8 / 60e3)
    assert "the time of an iteration is not known" in made.notes[-1]
    assert made.refusals == ()


def test_imported_tokens_are_predicted_without_seconds(working_folder):
    """A batch counts sequences of unreported length: only rates are known."""
    made = forecast_of(TXL, gpus=(64,), batch=(4,))
    study = Study(Path("outputs") / "rates")
    (group,) = make_report(study.name, read_snapshots(study.cells()), ()).groups
    table = predictions(group.source, made)
    assert "seconds" not in " ".join(table.caption)
    (row,) = (
        dict(zip(table.sheet.columns, row, strict=True)) for row in table.sheet.rows
    )
    assert not {"predicted_step_s", "low_s", "null_s"} & {*row}
    (prediction,) = made.predictions
    assert row["units_per_s"] == pytest.approx(256 / prediction.step_s)
    assert row["low_units_per_s"] == pytest.approx(256 / prediction.high_s)
    assert row["null_units_per_s"] == pytest.approx(2 * 150_000)


def test_imported_study_in_one_node_is_refused_across_nodes(working_folder):
    made = forecast_of(
        "gpus,gpus_per_node,batch,rate\n1,8,4,1000\n2,8,4,1900\n", gpus=(4, 16)
    )
    assert [p.target.gpus for p in made.predictions] == [4]
    (refused,) = made.refusals
    assert refused.reason.endswith(
        "one node says nothing about a network: measure gpus=16 nodes=2 batch=4"
    )


@pytest.mark.parametrize("question", [{}, {"gpus": (8, 16)}])
def test_imported_study_without_gpus_of_a_node_assumes_the_most(
    question, working_folder
):
    """The same answer, whether the next sizes are asked for or not."""
    rows = "gpus,batch,rate\n1,4,1000\n2,4,1900\n4,4,3700\n"
    made = forecast_of(rows, **question)
    assert [(r.target.gpus, r.target.nodes) for r in made.refusals] == [(8, 2), (16, 4)]
    assert any(
        "4 are assumed, the most that were measured" in note for note in made.notes
    )
    assert forecast_of(rows, gpus=(8,), nodes=1).predictions
    assert forecast_of(rows, gpus=(8,), gpus_per_node=8).predictions
    with pytest.raises(UsageError, match="import the file again with gpus_per_node=2"):
        forecast_of(rows, gpus=(8,), gpus_per_node=2)


def test_imported_study_of_one_gpu_is_refused_with_the_row_to_add(working_folder):
    (refused,) = forecast_of("gpus,batch,rate\n1,4,1000\n").refusals
    assert refused.reason.endswith("no exchange is known: measure gpus=2 batch=4")
