"""Every cell is judged: what holds, what is doubtful, what is wrong, each with its reason."""

from collections.abc import Sequence

from hpml_jobs.checks import communication as traffic
from hpml_jobs.checks import comparability as comparisons
from hpml_jobs.checks import correctness as soundness
from hpml_jobs.checks import imported as secondhand
from hpml_jobs.checks import quality as circumstances
from hpml_jobs.checks.result import CheckResult, Level, in_short
from hpml_jobs.core.record import Record
from hpml_jobs.slurm.states import Outcome

__all__ = ["CheckResult", "Level", "in_short", "of_record", "of_study"]

MEASURED = (*soundness.CHECKS, *traffic.CHECKS, *circumstances.CHECKS)
IMPORTED = secondhand.CHECKS


def of_record(record: Record) -> tuple[CheckResult, ...]:
    """Every check that one record alone allows; those that cannot be applied are not there."""
    if record.outcome is not Outcome.OK:
        return ()
    checks = IMPORTED if record.imported else MEASURED
    return tuple(result for check in checks if (result := check(record)) is not None)


def of_study(records: Sequence[Record]) -> dict[str, tuple[CheckResult, ...]]:
    """By slug: each record's own checks, and those that need its neighbours in the study."""
    told = [record for record in records if record.outcome is Outcome.OK]
    beside = comparisons.of_study(told)
    return {record.slug: of_record(record) + beside.get(record.slug, ()) for record in records}
