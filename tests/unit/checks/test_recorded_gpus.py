"""Records of real cells on a GPU whose host launches kernels slowly, and what checks say."""

from pathlib import Path

import pytest

from hpml_jobs.checks.study import check_record
from hpml_jobs.core.check_result import Level
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import decode

RECORDED = Path(__file__).parents[2] / "data" / "recorded"


def recorded(name: str) -> Record:
    return decode((RECORDED / name).read_bytes(), name)


@pytest.mark.parametrize("name", ["single-b32", "single-b512", "ddp", "allreduce"])
def test_no_check_fails_on_a_real_gpu(name):
    results = check_record(recorded(f"h100-{name}.json"))
    assert [result.check for result in results if result.level is Level.FAIL] == []
