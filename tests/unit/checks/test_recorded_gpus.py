"""Records of real cells on a GPU whose host launches kernels slowly, and what checks say."""

from pathlib import Path

import pytest

from hpml_jobs.checks.study import check_record
from hpml_jobs.core.check_result import Affected, Level, Tier
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import decode
from tests.unit.check_cases import result_of

RECORDED = Path(__file__).parents[2] / "data" / "recorded"


def recorded(name: str) -> Record:
    return decode((RECORDED / name).read_bytes(), name)


@pytest.mark.parametrize(
    ("name", "share"),
    [("h100-single-b32.json", 25.83), ("h100-ddp.json", 58.99), ("h100-allreduce.json", 47.6)],
)
def test_gpu_that_waits_for_its_host_is_named(name, share):
    """The host's least time to launch was two thirds of an iteration: it did not show it."""
    record = recorded(name)
    result = result_of(check_record(record), "gpu-utilization")
    assert (result.level, result.tier, result.affects) == (Level.WARN, Tier.TABLE, (Affected.TIME,))
    assert f"the GPU of rank 0 is busy for {share} % of an iteration without stall" in result.reason
    assert result.remedy == "use a larger batch=, or compile=true, which launches fewer kernels"


def test_gpu_that_computes_all_the_time_passes():
    result = result_of(check_record(recorded("h100-single-b512.json")), "gpu-utilization")
    assert result.level is Level.PASS
    assert "busy for 97.12 % of an iteration" in result.reason


@pytest.mark.parametrize("name", ["single-b32", "single-b512", "ddp", "allreduce"])
def test_no_check_fails_on_a_real_gpu(name):
    results = check_record(recorded(f"h100-{name}.json"))
    assert [result.check for result in results if result.level is Level.FAIL] == []
