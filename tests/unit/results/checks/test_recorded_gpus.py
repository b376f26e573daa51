"""Records of real cells on a GPU whose host launches kernels slowly, and what checks say."""

from pathlib import Path

import pytest

from hpml_jobs.core.check_result import Level
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import decode
from hpml_jobs.results.checks.study import check_record

RECORDED = Path(__file__).parents[3] / "data" / "recorded"


def recorded(name: str) -> Record:
    return decode((RECORDED / name).read_bytes(), name)


@pytest.mark.parametrize(
    "name",
    [
        "h100-single-b32",
        "h100-single-b512",
        "h100-ddp",
        "h100-allreduce",
        "h200-graphs",
        "h200-ddp-fp16",
    ],
)
def test_no_check_fails_on_a_real_gpu(name):
    results = check_record(recorded(f"{name}.json"))
    assert [result.check for result in results if result.level is Level.FAIL] == []
