"""Table of iterations, for cells that count them."""

import numpy as np

from hpml_jobs.core.measurements import Role
from tests.unit.builders import lab_cell, lab_record
from tests.unit.check_cases import change_scheduling
from tests.unit.training_runs import two_gpu_cell_with_curves, write_curves


def test_iterations_are_counted_without_the_first(builder):
    slug = two_gpu_cell_with_curves(builder, epoch_iterations=49)
    steps = np.full((2, 147), 0.01)
    steps[:, 49] = 5.0  # of the timed epoch
    steps[1, 50:98] = 0.02
    write_curves(builder, slug, curve_step_s=steps)
    line = builder.table("iterations").lines[0]
    # losses 2 to 1 in 147 iterations, of ranks one apart: 2.5 - n / 146
    assert line.texts == ("20.0", "49", "2.3425", "2.1712")


def test_iterations_are_of_the_runs_that_the_time_counts(builder):
    for repeat, step_s in enumerate((0.01, 0.03, 0.1)):
        record = lab_record(lab_cell(2, 512, epoch_iterations=49, repeat=repeat), 20.0)
        disturb = change_scheduling(Role.TIMED, stolen_s=8.0)
        is_disturbed = step_s == 0.1
        slug = builder.with_record(disturb(record) if is_disturbed else record).slug
        write_curves(builder, slug, curve_step_s=np.full((2, 147), step_s))
    table = builder.table("iterations")
    assert table.lines[0].texts[:2] == ("20.0", "49")
    assert table.caption[-1] == "Median of 2 runs."
