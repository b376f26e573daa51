"""Data-quality checks of every record: what is sound, what is doubtful, what is wrong, and why."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hpml_jobs.checks import (
    communication,
    correctness,
    cpus,
    disturbance,
    gpu_memory,
    gpu_use,
    gpus,
    imported,
    profiling,
    quality,
    trend,
    waiting,
)
from hpml_jobs.checks.comparability import COMPARABILITY, check_peers
from hpml_jobs.checks.concurrency import CONCURRENCY
from hpml_jobs.checks.result import Check, CheckResult, Level, Tier, in_short
from hpml_jobs.core.record import Record
from hpml_jobs.slurm.states import Outcome

__all__ = ["GROUPS", "Check", "CheckResult", "Level", "check_record", "check_study", "in_short"]

QUALITY = (
    *cpus.CHECKS,
    *gpus.CHECKS,
    *gpu_use.CHECKS,
    *quality.CHECKS,
    *trend.CHECKS,
    *profiling.CHECKS,
)
CORRECTNESS = (*correctness.CHECKS, *gpu_memory.CHECKS)
MEASURED = (
    *CORRECTNESS,
    *communication.CHECKS,
    *waiting.CHECKS,
    *disturbance.CHECKS,
    *QUALITY,
)
IMPORTED = imported.CHECKS

GROUPS: Mapping[str, tuple[Check[Any], ...]] = {
    "Correctness": CORRECTNESS,
    "Communication": communication.CHECKS,
    "Waiting": waiting.CHECKS,
    "Disturbance": disturbance.CHECKS,
    "Data quality": QUALITY,
    "Comparability": COMPARABILITY,
    "Concurrency": CONCURRENCY,
    "Imported timings": tuple(check for check in IMPORTED if check not in MEASURED),
}
"""Every check once, by what it is about."""


def check_record(record: Record) -> tuple[CheckResult, ...]:
    """Return the results of the checks that one record alone allows."""
    if record.outcome is not Outcome.OK:
        return ()
    checks = IMPORTED if record.imported else MEASURED
    results = [(check, result) for check in checks if (result := check(record)) is not None]
    violated = [result for _, result in results if result.level is not Level.PASS]
    return tuple(
        msgspec.structs.replace(result, tier=Tier.LIST)
        if result.level is Level.WARN and _is_explained(result, check, violated)
        else result
        for check, result in results
    )


def _is_explained(
    result: CheckResult, check: Check[[Record]], violated: Sequence[CheckResult]
) -> bool:
    """Return whether the line of another violated check says enough about the same numbers."""
    return any(
        other.check in check.explained_by and {*result.affects} <= {*other.affects}
        for other in violated
    )


def check_study(records: Sequence[Record]) -> dict[str, tuple[CheckResult, ...]]:
    """Return by slug the results of each record's own checks and of those beside its peers."""
    with_numbers = [record for record in records if record.outcome is Outcome.OK]
    beside = check_peers(with_numbers)
    return {record.slug: check_record(record) + beside.get(record.slug, ()) for record in records}
