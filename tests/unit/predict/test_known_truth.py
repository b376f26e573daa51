"""Predictions of machines whose compute, links and interference are known."""

import msgspec
import pytest

from hpml_jobs.core.strategies import Strategy
from hpml_jobs.predict.forecast import Method, Prediction, Refusal, predict
from hpml_jobs.predict.network import BusSweep
from hpml_jobs.predict.place import Size, Target
from tests.unit.predict.truth import Machine

ONE_NODE = ((1, 1), (2, 1), (4, 1))


def predicted(cells, gpus, batch, nodes=1, *, accumulate=1, given=None):
    target = Target(
        gpus=gpus, batch=batch, nodes=nodes, accumulate=accumulate, strategy=Strategy.DDP
    )
    (made,) = predict(cells, [target], given)
    return made


def flat_sweep(gb_per_s):
    """A sweep across nodes with the same bus bandwidth at all sizes."""
    return BusSweep("given.csv", {1_000: gb_per_s, 1_000_000_000: gb_per_s})


@pytest.mark.parametrize("batch", [8, 32, 128])
def test_larger_size_in_a_node_recovers_the_truth(batch):
    machine = Machine()
    made = predicted(machine.cells(ONE_NODE, (8, 32, 128)), 8, batch)
    assert made.step_s == pytest.approx(machine.step_s(batch, Size(1, 8)), rel=0.01)
    assert made.low_s < machine.step_s(batch, Size(1, 8)) < made.high_s


def test_parts_of_a_prediction_are_those_of_the_machine():
    machine = Machine()
    made = predicted(machine.cells(ONE_NODE, (8, 32)), 8, 32)
    assert made.parts.compute_s == pytest.approx(machine.compute_s(32), rel=1e-6)
    assert made.parts.exposed_s == pytest.approx(machine.exposed_s(32, Size(1, 8)), rel=0.02)
    assert made.parts.interference_s == pytest.approx(machine.interference_s, rel=0.02)
    assert made.step_s == pytest.approx(sum(msgspec.structs.astuple(made.parts)))


def test_interference_is_learnt_from_one_size_of_several_gpus():
    machine = Machine(interference_s=0.02)
    made = predicted(machine.cells(((1, 1), (2, 1)), (8, 32)), 4, 32)
    assert made.step_s == pytest.approx(machine.step_s(32, Size(1, 4)), rel=0.01)
    assert any("only one size" in remark for remark in made.remarks)


@pytest.mark.parametrize("batch", [16, 64, 512])
def test_batch_that_was_not_measured_recovers_the_truth(batch):
    machine = Machine(share=1.0)
    made = predicted(machine.cells(ONE_NODE, (8, 32, 128)), 4, batch)
    assert made.step_s == pytest.approx(machine.step_s(batch, Size(1, 4)), rel=0.02)


def test_batch_of_one_two_node_cell_transfers_to_others():
    machine = Machine(node_gb_per_s=3.0)
    cells = machine.cells(((1, 1), (8, 1)), (16, 64, 256))
    cells.append(machine.observation(16, 64, 2))
    for batch in (16, 256):
        made = predicted(cells, 16, batch, 2)
        assert made.step_s == pytest.approx(machine.step_s(batch, Size(2, 16)), rel=0.03)


def test_batch_transfer_follows_compute_that_shares_a_node():
    machine = Machine(share=1.0)
    cells = machine.cells(((1, 1),), (16, 64, 256))
    for batch in (64, 256):
        lost_s = 0.25 * machine.compute_s(batch)  # memory bandwidth that two processes share
        slower = {
            "step_s": machine.step_s(batch, Size(1, 2)) + lost_s,
            "unsynced_s": machine.compute_s(batch) + lost_s,
        }
        cells.append(machine.observation(2, batch, **slower))
    truth_s = machine.step_s(16, Size(1, 2)) + 0.25 * machine.compute_s(16)
    assert predicted(cells, 2, 16).step_s == pytest.approx(truth_s, rel=1e-6)


def test_slow_link_exposes_what_backward_cannot_hide():
    machine = Machine(node_gb_per_s=0.8, share=0.1)
    cells = machine.cells(((1, 1), (4, 1), (8, 1)), (32, 64))
    cells += [machine.observation(16, batch, 2) for batch in (32, 64)]
    made = predicted(cells, 256, 64, 32)
    truth_s = machine.step_s(64, Size(32, 256))
    assert truth_s > 1.03 * machine.step_s(64, Size(2, 16))
    assert made.model_s == pytest.approx(truth_s, rel=0.02)


def test_accumulation_without_such_a_cell_adds_micro_steps():
    machine = Machine()
    made = predicted(machine.cells(ONE_NODE, (8, 32)), 4, 32, accumulate=8)
    assert made.step_s == pytest.approx(machine.step_s(32, Size(1, 4), 8), rel=1e-6)


def test_accumulation_from_measured_ones_follows_them():
    machine = Machine()
    cells = machine.cells(ONE_NODE, (32,))
    cells += [machine.observation(4, 32, accumulate=a, unsynced_s=None) for a in (2, 4)]
    made = predicted(cells, 4, 32, accumulate=16)
    assert made.step_s == pytest.approx(machine.step_s(32, Size(1, 4), 16), rel=1e-6)


def test_given_sweep_replaces_a_two_node_cell():
    machine = Machine(share=1.0)
    cells = machine.cells(((1, 1), (4, 1), (8, 1)), (32,))
    made = predicted(cells, 32, 32, 4, given=flat_sweep(machine.node_gb_per_s))
    truth_s = machine.step_s(32, Size(4, 32)) - 3 * 5 * machine.startup_s
    assert made.step_s == pytest.approx(truth_s, rel=0.01)
    assert any("the network is as given" in remark for remark in made.remarks)
    assert made.high_s - made.step_s > machine.exchange_s(Size(4, 32)) / 2


def test_band_has_what_a_slower_given_network_would_expose():
    machine = Machine(share=0.05)
    cells = machine.cells(((1, 1), (4, 1), (8, 1)), (32,))
    made, half = (predicted(cells, 16, 32, 2, given=flat_sweep(speed)) for speed in (10.0, 5.0))
    given_s = 2 * 15 / 16 * sum(machine.buckets) / 10e9
    assert given_s < machine.backward_s(32) * 2 / 3 < half.parts.exposed_s / 0.05
    assert any("the network is as given" in remark for remark in made.remarks)
    assert made.low_s < made.step_s < half.step_s < made.high_s


def with_wrong_exposure(cells):
    """The cells with so much exposed that the model is worse than no change."""
    return [msgspec.structs.replace(c, exposed_s=0.01) if c.gpus > 1 else c for c in cells]


def test_null_is_shown_where_it_is_as_good():
    machine = Machine(in_node_gb_per_s=1e6, startup_s=0.0, interference_s=0.0)
    made = predicted(with_wrong_exposure(machine.cells((*ONE_NODE, (8, 1)), (32,))), 16, 32)
    assert made.skill.null.mean <= made.skill.model.mean
    assert (made.method, made.step_s) == (Method.NULL, made.null_s)


def test_null_inside_a_node_is_no_place_across_nodes():
    machine = Machine()
    cells = machine.cells(((1, 1), (4, 1), (8, 2)), (32,))
    assert predicted(cells, 8, 32).null_s == machine.step_s(32, Size(1, 4))


def test_third_batch_from_two_is_of_the_model():
    """Without one of the two the model has no more than no change: that tie decides nothing."""
    machine = Machine(fixed_s=0.2, share=1.0)
    made = predicted(machine.cells(ONE_NODE, (32, 128)), 4, 64)
    assert made.method is Method.MODEL
    assert made.step_s == pytest.approx(machine.step_s(64, Size(1, 4)), rel=0.02)
    assert made.null_s > 1.3 * made.step_s


def test_null_that_was_not_tried_at_other_batches_is_not_shown():
    machine = Machine(in_node_gb_per_s=1e6, startup_s=0.0, interference_s=0.0)
    made = predicted(with_wrong_exposure(machine.cells((*ONE_NODE, (8, 1)), (32,))), 16, 64)
    assert made.skill.is_null_better
    assert made.method is Method.MODEL
    assert any("no measured cell tries this: batch" in remark for remark in made.remarks)


def test_fixed_global_batch_is_predicted_from_all_its_batches():
    machine = Machine(share=1.0)
    cells = [machine.observation(gpus, 512 // gpus) for gpus in (1, 2, 4)]
    for batch in (64, 256):
        made = predicted(cells, 8, batch)
        assert made.step_s == pytest.approx(machine.step_s(batch, Size(1, 8)), rel=0.01)
        assert [p.observation.gpus for p in made.skill.points] == [4]
        assert made.skill.model.worst < 0.01 < made.skill.null.worst
        assert made.low_s < made.step_s < made.high_s
        assert made.remarks == ()


def test_size_with_the_batch_comes_before_a_larger_one_without():
    machine = Machine(share=1.0)
    cells = [machine.observation(gpus, 512 // gpus) for gpus in (1, 2, 4)]
    timed = [msgspec.structs.replace(cell, unsynced_s=None) for cell in cells]
    made = predicted(timed, 8, 256)
    assert made.step_s == pytest.approx(machine.step_s(256, Size(1, 8)), rel=0.01)


def test_parts_longer_than_their_iteration_are_refused():
    machine = Machine()
    cells = [*machine.cells(((1, 1),), (32,)), machine.observation(4, 32, accumulate=8)]
    disturbed = [
        msgspec.structs.replace(cell, unsynced_s=100.0) if cell.gpus > 1 else cell for cell in cells
    ]
    made = predicted(disturbed, 4, 32)
    assert made.reason == (
        "the parts measured on gpus=4 are longer than its iteration: repeat this cell"
    )


def test_node_border_without_a_fact_of_it_is_refused():
    cells = Machine().cells((*ONE_NODE, (8, 1)), (32,))
    wanted = []
    target = Target(gpus=64, batch=32, nodes=8, strategy=Strategy.DDP)
    (made,) = predict(cells, [target], None, lambda p: wanted.append(p) or "run")
    assert isinstance(made, Refusal)
    assert made.command == "run"
    assert [(p.gpus, p.nodes, p.batch) for p in wanted] == [(16, 2, 32)]


def test_one_command_serves_all_batches():
    cells = Machine().cells((*ONE_NODE, (8, 1)), (32, 64))
    targets = [
        Target(gpus=gpus, batch=batch, nodes=gpus // 8, strategy=Strategy.DDP)
        for gpus in (16, 32)
        for batch in (32, 64)
    ]
    made = predict(cells, targets, None, lambda p: f"gpus={p.gpus} batch={p.batch}")
    assert [refusal.command for refusal in made] == ["gpus=16 batch=32"] * 4
    cells.append(Machine().observation(16, 32, 2))
    after = predict(cells, [t for t in targets if t.batch == 64])
    assert all(isinstance(prediction, Prediction) for prediction in after)


def test_band_is_wider_further_away():
    cells = Machine().cells((*ONE_NODE, (8, 1)), (32,))
    near, far = (predicted(cells, gpus, 32) for gpus in (16, 128))
    assert isinstance(near, Prediction)
    assert far.high_s / far.low_s > near.high_s / near.low_s > 1


def test_cells_without_messages_are_refused_for_other_sizes():
    cells = [
        msgspec.structs.replace(cell, messages=()) if cell.gpus == 4 else cell
        for cell in Machine().cells(ONE_NODE, (8, 32))
    ]
    made = predicted(cells, 8, 32)
    assert "messages" in made.reason
    assert isinstance(predicted(cells, 4, 16), Prediction)


def test_size_below_the_measured_ones_is_refused():
    cells = Machine().cells(((1, 1), (4, 1), (8, 1)), (32,))
    assert "smallest measured" in predicted(cells, 2, 32).reason


def test_cheap_two_node_cell_prices_whole_nodes_from_one_node():
    machine = Machine(share=1.0, node_gb_per_s=3.0)
    cells = machine.cells(((1, 1), (4, 1), (8, 1)), (32,))
    cells.append(machine.observation(2, 32, 2))  # one GPU on each of two nodes
    made = predicted(cells, 16, 32, 2)
    assert made.step_s == pytest.approx(machine.step_s(32, Size(2, 16)), rel=0.02)
