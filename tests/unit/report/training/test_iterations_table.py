"""Table of iterations, for cells that count them."""

import numpy as np

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
