"""Every cell is judged: what holds, what is doubtful, what is wrong, each with its reason."""

from collections.abc import Sequence

from hpml_jobs.record import Record
from hpml_jobs.slurm import Outcome
from hpml_jobs.verdicts import circumstances, comparisons, secondhand, soundness, traffic
from hpml_jobs.verdicts.judgement import Level, Verdict, in_short

__all__ = ["Level", "Verdict", "in_short", "of_record", "of_study"]

MEASURED = (*soundness.CHECKS, *traffic.CHECKS, *circumstances.CHECKS)
IMPORTED = secondhand.CHECKS


def of_record(record: Record) -> tuple[Verdict, ...]:
    """Every check that one record alone allows; those that cannot be applied are not there."""
    if record.outcome is not Outcome.OK:
        return ()
    checks = IMPORTED if record.imported else MEASURED
    return tuple(verdict for check in checks if (verdict := check(record)) is not None)


def of_study(records: Sequence[Record]) -> dict[str, tuple[Verdict, ...]]:
    """By slug: each record's own checks, and those that need its neighbours in the study."""
    told = [record for record in records if record.outcome is Outcome.OK]
    beside = comparisons.of_study(told)
    return {record.slug: of_record(record) + beside.get(record.slug, ()) for record in records}
