"""The formulas against the constants of the lab's models and data set."""

import pytest

from hpml_jobs.core import formulas

IMAGES = 50_000
GRADIENT_BYTES = 44_695_848


@pytest.mark.parametrize(
    ("processes", "expected"),
    [(1, (1563, 391, 98)), (2, (782, 196, 49)), (4, (391, 98, 25))],
)
def test_iterations_match_the_lab_table(processes, expected):
    found = tuple(
        formulas.iterations(IMAGES, processes, batch) for batch in (32, 128, 512)
    )
    assert found == expected


def test_ring_factor_matches_nccl_tests():
    assert [formulas.ring_factor(n) for n in (1, 2, 4, 8)] == [0.0, 1.0, 1.5, 1.75]


def test_bus_bandwidth_counts_every_iteration_of_the_epoch():
    one = formulas.bus_gb_per_s(GRADIENT_BYTES, 1.0, 2)
    epoch = formulas.bus_gb_per_s(782 * GRADIENT_BYTES, 1.0, 2)
    assert one == pytest.approx(0.044695848)
    assert epoch == pytest.approx(782 * one)


def test_speedup_is_time_ratio_and_efficiency_is_per_gpu():
    assert formulas.speedup(48.612, 30.822) == pytest.approx(1.577185)
    assert formulas.efficiency(formulas.speedup(40.0, 10.0), 4) == 1.0


def test_sampler_pads_to_equal_shares():
    assert formulas.samples_processed(50_000, 3) == 50_001
    assert formulas.samples_processed(50_000, 4) == 50_000


def test_residual_may_be_negative():
    assert formulas.residual_communication_s(9.0, 5_000, 20.0, 10_000) == -1.0


def test_gpu_hours_count_every_gpu_until_time_limit():
    assert formulas.gpu_hours(8, 90) == 12.0
