"""Records of real runs with a fault that makes a number of Tables 1 to 3 wrong: a check fails."""

from pathlib import Path

from hpml_jobs.core.check_result import Affected, Level
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import decode
from tests.unit.check_cases import check_records, result_of

RECORDED = Path(__file__).parents[3] / "data" / "recorded"


def recorded(name: str) -> Record:
    return decode((RECORDED / name).read_bytes(), name)


def test_script_without_distributed_sampler_fails():
    alone, both = recorded("every-sample-1.json"), recorded("every-sample-2.json")
    results = check_records([alone, both])
    result = result_of(results[both.slug], "epoch-samples")
    assert (result.level, result.affects) == (Level.FAIL, (Affected.TIME,))
    assert (
        "an epoch has 4,096 samples, of the baseline 2,048: let the script share"
        in result.reason
    )
    assert "epoch-samples" not in {
        r.check for r in results[alone.slug] if r.level != Level.PASS
    }
