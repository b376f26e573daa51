"""Predictions and refusals on machines whose compute, links and interference are known."""

import pytest

from hpml_jobs.core.place import Place, Setup
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.extras.predict.forecast import Prediction, Refusal, predict
from hpml_jobs.extras.predict.place import MeasuredPlace, Target, changed
from tests.unit.extras.predict.truth import Machine

ONE_NODE = ((1, 1), (2, 1), (4, 1))


def target(gpus, batch, nodes=1, strategy=Strategy.DDP):
    return Target(place=Place(Setup(gpus, nodes, strategy), batch))


def predicted(cells, gpus, batch, nodes=1):
    (made,) = predict(cells, [target(gpus, batch, nodes)])
    return made


def words(place):
    setup = place.place.setup
    return f"{setup.strategy} gpus={place.gpus} nodes={place.nodes} batch={place.batch}"


def refused(cells, wanted):
    (made,) = predict(cells, [wanted], words)
    assert isinstance(made, Refusal)
    return made


def test_null_inside_a_node_is_no_place_across_nodes():
    machine = Machine()
    cells = machine.cells(((1, 1), (4, 1), (8, 2)), (32,))
    assert predicted(cells, 8, 32).null_s == machine.step_s(32, 4)


def test_node_border_without_a_fact_of_it_is_refused():
    cells = Machine().cells((*ONE_NODE, (8, 1)), (32,))
    made = refused(cells, target(64, 32, nodes=8))
    assert made.command == "ddp gpus=16 nodes=2 batch=32"


def test_strategy_of_one_node_has_no_cell_across_nodes():
    cells = [
        MeasuredPlace(
            place=changed(cell, strategy=Strategy.DP).place, step_s=cell.step_s
        )
        for cell in Machine().cells(ONE_NODE[1:], (32,))
    ]
    made = refused(cells, target(8, 32, nodes=2, strategy=Strategy.DP))
    assert (made.reason, made.command) == ("dp runs on one node", None)


def test_one_command_serves_all_batches():
    cells = Machine().cells((*ONE_NODE, (8, 1)), (32, 64))
    targets = [
        target(gpus, batch, nodes=gpus // 8) for gpus in (16, 32) for batch in (32, 64)
    ]
    made = predict(cells, targets, words)
    assert [refusal.command for refusal in made] == ["ddp gpus=16 nodes=2 batch=32"] * 4
    cells.append(Machine().observation(16, 32, 2))
    after = predict(cells, [t for t in targets if t.batch == 64])
    assert all(isinstance(prediction, Prediction) for prediction in after)


def test_band_is_wider_further_away():
    cells = Machine().cells((*ONE_NODE, (8, 1)), (32,))
    near, far = (predicted(cells, gpus, 32) for gpus in (16, 128))
    assert isinstance(near, Prediction)
    assert far.high_s / far.low_s > near.high_s / near.low_s > 1


def test_batch_that_was_not_measured_is_refused_with_the_smallest_size():
    cells = Machine().cells(ONE_NODE, (32, 64))
    asked = target(8, 48)
    assert refused(cells, asked).command == "single gpus=1 nodes=1 batch=48"
    cells.append(Machine().observation(1, 48))
    assert isinstance(predicted(cells, 8, 48), Prediction)


def test_batch_of_a_study_without_one_gpu_is_refused_with_its_smallest_size():
    cells = Machine().cells(ONE_NODE[1:], (32, 64))
    assert refused(cells, target(8, 48)).command == "ddp gpus=2 nodes=1 batch=48"
    cells.append(Machine().observation(2, 48))
    assert isinstance(predicted(cells, 8, 48), Prediction)


def test_fixed_global_batch_is_refused_until_another_size_has_the_batch():
    cells = [Machine().observation(gpus, 512 // gpus) for gpus in (1, 2, 4)]
    assert refused(cells, target(8, 64)).command == "single gpus=1 nodes=1 batch=64"
    assert refused(cells, target(8, 128)).command == "single gpus=1 nodes=1 batch=128"
    cells.append(Machine().observation(1, 128))
    assert isinstance(predicted(cells, 8, 128), Prediction)


def test_accumulations_are_predicted_apart():
    """Each from its own cells: an iteration of several micro-steps is another one."""
    path = "accumulate 4"
    cells = Machine().cells(ONE_NODE, (32,))
    held = [
        MeasuredPlace(
            place=changed(cell, treatment=path, path=path).place,
            accumulate=4,
            step_s=3 * cell.step_s,
        )
        for cell in cells
    ]
    both = [changed(cells[-1], gpus=8), changed(held[-1], gpus=8)]
    once, more = predict([*cells, *held], both)
    assert more.step_s == pytest.approx(3 * once.step_s)
    assert more.target.samples == 4 * once.target.samples
