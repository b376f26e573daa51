"""The band on machines of known truth whose times scatter."""

import math
import random

import msgspec

from hpml_jobs.core.strategies import Strategy
from hpml_jobs.predict.forecast import predict
from hpml_jobs.predict.place import Size, Target
from tests.unit.predict.truth import Machine

MACHINES = 40


def a_machine(generator):
    return Machine(
        share=generator.uniform(0.1, 1),
        interference_s=generator.uniform(0, 0.01),
        fixed_s=generator.uniform(0.002, 0.02),
        in_node_gb_per_s=generator.uniform(5, 100),
    )


def scattered(cells, generator, noise):
    """The cells with times that differ from the truth by a factor, each by its own."""
    return [
        msgspec.structs.replace(
            cell,
            step_s=cell.step_s * math.exp(generator.gauss(0, noise)),
            unsynced_s=cell.unsynced_s and cell.unsynced_s * math.exp(generator.gauss(0, noise)),
        )
        for cell in cells
    ]


def contained(noise, target, batches):
    """The share of machines whose next measurement lies in the band."""
    hits = 0
    for seed in range(MACHINES):
        generator = random.Random(seed)
        machine = a_machine(generator)
        cells = machine.cells(((1, 1), (2, 1), (4, 1)), batches)
        cells = scattered(cells, generator, noise)
        (made,) = predict(cells, [target])
        truth_s = machine.step_s(target.batch, Size(1, target.gpus))
        measured_s = truth_s * math.exp(generator.gauss(0, noise))
        hits += made.low_s <= measured_s <= made.high_s
    return hits / MACHINES


def test_band_of_a_larger_size_contains_four_fifths_or_more():
    target = Target(gpus=8, batch=32, strategy=Strategy.DDP)
    for noise in (0.01, 0.05):
        assert contained(noise, target, (16, 32, 128)) >= 0.8


def test_band_of_another_batch_contains_four_fifths_or_more():
    target = Target(gpus=4, batch=64, strategy=Strategy.DDP)
    assert contained(0.03, target, (16, 32, 128)) >= 0.8


def test_band_is_not_much_wider_than_the_scatter():
    target = Target(gpus=8, batch=32, strategy=Strategy.DDP)
    machine = Machine()
    cells = scattered(
        machine.cells(((1, 1), (2, 1), (4, 1)), (16, 32, 64, 128)), random.Random(3), 0.02
    )
    (made,) = predict(cells, [target])
    assert math.log(made.high_s / made.low_s) < 2 * 8 * 0.02
