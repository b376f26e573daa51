"""The least time of an optimizer's step, by the bytes that it reads and writes."""

import pytest
from msgspec.structs import replace

from hpml_jobs.checks.study import check_record
from hpml_jobs.extras.cards.memory import least_step_s
from tests.unit.check_cases import change_facts, clean_record


def test_optimizer_step_needs_the_bytes_beyond_the_cache():
    """5 passes over 1 GB less twice the cache of an A100, at 2,039 GB/s."""
    assert least_step_s(10**9, 5, 2039, 42) == pytest.approx((5e9 - 84e6) / 2.039e12)
    assert least_step_s(10**9, 3, 2039, 42) == pytest.approx((3e9 - 84e6) / 2.039e12)


def without_model(record):
    return replace(record, model=None)


@pytest.mark.parametrize("change", [change_facts(gpu_model=""), without_model])
def test_step_of_an_unknown_gpu_or_model_is_not_judged(change):
    names = {result.check for result in check_record(clean_record())}
    absent = {result.check for result in check_record(change(clean_record()))}
    assert "memory-bandwidth" in names - absent
