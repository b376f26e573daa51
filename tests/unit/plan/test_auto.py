"""What `auto` measures, and what it answers: on published series, with simulated noise."""

import csv
import math
import random
from collections import defaultdict
from pathlib import Path
from statistics import mean

import pytest

from hpml_jobs.plan.auto import Chosen, Goal, Measured, Setting, next_cells

PUBLISHED = Path(__file__).parents[2] / "data" / "published"
ALL_AT_ONCE = 100
STUDIES = 2000
GPU_HOURS = 0.1
"""What one launch takes on one GPU in these tests."""


def published_grids():
    """Return GPU-seconds per sample of each setting, of every grid with several batches."""
    grids = defaultdict(dict)
    for path in sorted(PUBLISHED.glob("*.csv")):
        with path.open() as file:
            for line in csv.DictReader(file):
                setting = Setting(int(line["gpus"]), int(line["batch"]))
                rate = float(line["rate"])
                if line["unit"] == "s/iteration":
                    rate = setting.gpus * setting.batch / rate
                name = path.stem, line["model"], line["gpu_model"]
                grids[name][setting] = setting.gpus / rate
    whole = (as_whole(grid) for grid in grids.values())
    return [grid for grid in whole if len(batches_of(grid)) > 1]


def as_whole(grid):
    """Return a grid without the batches that were not measured at every size."""
    sizes = sizes_of(grid)
    return {
        setting: value
        for setting, value in grid.items()
        if all(Setting(size, setting.batch) in grid for size in sizes)
    }


def sizes_of(grid):
    return sorted({setting.gpus for setting in grid})


def batches_of(grid):
    return sorted({setting.batch for setting in grid})


def study(goal, grid, measure=None):
    """Return the answer, and the launches of each setting; None in a grid does not fit."""
    known, launches = {}, []
    while True:
        step = next_cells(goal, sizes_of(grid), batches_of(grid), known)
        if isinstance(step, Chosen):
            return step, launches
        assert step
        assert len(launches) < 100
        for setting in step:
            launches.append(setting)
            value = (measure or grid.get)(setting)
            before = known.get(setting, Measured((), launches=0))
            known[setting] = Measured(
                gpu_s=() if value is None else (*before.gpu_s, value),
                launches=before.launches + 1,
                gpu_hours=GPU_HOURS * setting.gpus,
            )


def size_to_use(grid, batch, limit):
    """Return the largest size with an efficiency, as all of the grid says it."""
    smallest, *larger = sizes_of(grid)
    base = grid[Setting(smallest, batch)]
    meeting = [s for s in larger if base / grid[Setting(s, batch)] >= limit]
    return max(meeting, default=smallest)


def efficiencies(*values, batch=32):
    """Return a grid of one batch: the efficiency of 1, 2, 4, … GPUs."""
    return {
        Setting(2**place, batch): None if value is None else 1 / value
        for place, value in enumerate((1.0, *values))
    }


@pytest.mark.parametrize("limit", [0.6, 0.7, 0.8, 0.9])
def test_published_grids_give_the_same_size_for_less(limit):
    grids = published_grids()
    assert len(grids) == 31
    same, shares = 0, []
    for grid in grids:
        answer, launches = study(Goal(limit, batches_at_once=ALL_AT_ONCE), grid)
        assert answer.setting is not None
        same += answer.setting.gpus == size_to_use(grid, answer.setting.batch, limit)
        used = sum(grid[setting] for setting in launches)
        shares.append(used / sum(grid.values()))
    assert same >= 30
    assert mean(shares) <= 0.42


@pytest.mark.parametrize("noise", [0.01, 0.02, 0.05])
def test_noise_is_answered_rightly_or_called_undecided(noise):
    generator = random.Random(1)
    grids = published_grids()
    wrong = 0
    for _ in range(STUDIES):
        grid = generator.choice(grids)
        limit = generator.choice((0.6, 0.7, 0.8, 0.9))

        def measure(setting, grid=grid):
            return grid[setting] * math.exp(generator.gauss(0, noise))

        answer, _ = study(Goal(limit, repeats=True), grid, measure)
        assert answer.setting is not None
        right = size_to_use(grid, answer.setting.batch, limit)
        wrong += answer.setting.gpus != right and answer.undecided is None
    assert wrong <= 0.005 * STUDIES


def test_largest_size_that_meets_the_limit_is_all_that_is_measured():
    answer, launches = study(Goal(0.7), efficiencies(0.95, 0.9, 0.8))
    assert answer == Chosen(Setting(8, 32))
    assert launches == [Setting(1, 32), Setting(8, 32)]


def test_sizes_between_are_halved():
    answer, launches = study(Goal(0.7), efficiencies(0.95, 0.9, 0.6, 0.5, 0.4, 0.3))
    assert answer == Chosen(Setting(4, 32))
    assert [setting.gpus for setting in launches] == [1, 64, 8, 2, 4]


def test_efficiency_that_rises_measures_the_whole_row():
    answer, launches = study(Goal(0.7), efficiencies(0.5, 0.9, 0.5, 0.6))
    assert answer == Chosen(Setting(4, 32))
    assert len({*launches}) == 5


def test_size_that_does_not_fit_is_not_the_answer():
    answer, _ = study(Goal(0.7), efficiencies(0.95, None, None))
    assert answer == Chosen(Setting(2, 32))


def test_batches_are_tried_until_one_does_not_fit():
    grid = {Setting(1, batch): 1 / batch for batch in (32, 128)}
    grid |= {Setting(1, 512): None, Setting(1, 2048): None}
    answer, launches = study(Goal(0.7), grid)
    assert answer == Chosen(Setting(1, 128))
    assert [setting.batch for setting in launches] == [32, 128, 512]


def test_batches_are_tried_until_they_bring_nothing():
    grid = {Setting(1, 32): 2.0, Setting(1, 128): 1.0, Setting(1, 512): 0.99}
    grid[Setting(1, 2048)] = 0.5
    answer, launches = study(Goal(0.7), grid)
    assert answer == Chosen(Setting(1, 512))
    assert [setting.batch for setting in launches] == [32, 128, 512]


def test_no_batch_fits():
    answer, _ = study(Goal(0.7), {Setting(1, 32): None, Setting(1, 128): None})
    assert answer == Chosen(None)


def test_budget_goes_upwards_and_is_never_exceeded():
    grid = efficiencies(0.95, 0.9, 0.8)
    answer, launches = study(Goal(0.7, gpu_hours=4 * GPU_HOURS), grid)
    assert answer == Chosen(Setting(2, 32))
    assert [setting.gpus for setting in launches] == [1, 2]
    answer, launches = study(Goal(0.92, gpu_hours=100 * GPU_HOURS), grid)
    assert answer == Chosen(Setting(2, 32))
    assert [setting.gpus for setting in launches] == [1, 2, 4]


def test_disturbed_launches_are_repeated_but_not_for_ever():
    grid = efficiencies(0.71)
    known = {setting: Measured((value,), launches=5) for setting, value in grid.items()}
    answer = next_cells(Goal(0.7, repeats=True), [1, 2], [32], known)
    assert answer == Chosen(Setting(2, 32), undecided=Setting(1, 32))


def test_sizes_need_not_be_powers_of_two():
    grid = {Setting(gpus, 32): 1 + gpus / 20 for gpus in (1, 3, 6, 7)}
    answer, _ = study(Goal(0.8), grid)
    assert answer == Chosen(Setting(6, 32))


def test_batches_leave_ten_iterations_to_the_largest_size():
    known = {Setting(1, 32): Measured((1.0,), samples=2_560)}
    assert next_cells(Goal(0.7), [1, 2], [32, 128, 512], known) == [Setting(1, 128)]
    known[Setting(1, 128)] = Measured((0.5,), samples=2_560)
    assert next_cells(Goal(0.7), [1, 2], [32, 128, 512], known) == [Setting(2, 128)]


def test_batch_is_kept_once_sizes_are_measured():
    known = {Setting(1, 32): Measured((1.0,)), Setting(1, 128): Measured((0.99,))}
    known |= {Setting(2, 32): Measured((1.1,)), Setting(1, 512): Measured((0.88,))}
    assert next_cells(Goal(0.7), [1, 2], [32, 128, 512], known) == Chosen(
        Setting(2, 32)
    )


def test_batch_is_chosen_anew_if_another_turns_out_to_be_faster():
    known = {Setting(1, 32): Measured((1.0,)), Setting(1, 128): Measured((0.8,))}
    known[Setting(2, 32)] = Measured((1.1,))
    assert next_cells(Goal(0.7), [1, 2], [32, 128], known) == [Setting(2, 128)]
