"""Runs with an epoch that something outside of the cell disturbed: left out of a row's medians."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.disturbance import outside_causes
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.record import Record
from hpml_jobs.core.value import Value
from hpml_jobs.report.merge.run_values import (
    CommunicationTimes,
    GradientTraffic,
    PhaseTimes,
    RunValues,
    of_record,
)


class LeftOut(Value, frozen=True, kw_only=True):
    """A run that medians of its row do not contain, with the outside causes that were measured.

    `whole`: its timed epoch was disturbed, nothing of it counts; otherwise only its instrumented
    epoch was, and only the values of that one do not count.
    """

    slug: str
    reason: str
    whole: bool

    def holds_for(self, affected: Affected) -> bool:
        """Return whether the row's numbers of this kind do not contain the run."""
        if affected is Affected.LEARNING:
            return False
        return self.whole or affected is not Affected.TIME


class CountedRuns(NamedTuple):
    """The runs of a row that count, with their values, and those that are left out."""

    records: tuple[Record, ...]
    values: tuple[RunValues, ...]
    left_out: tuple[LeftOut, ...]


def counted_runs(records: Sequence[Record]) -> CountedRuns:
    """Leave out disturbed runs where an undisturbed one of the same row exists.

    Runs with slow iterations alone, without a measured outside cause, always count.
    """
    reasons = [_reason(record, Role.TIMED) for record in records]
    if all(reasons):
        reasons = [""] * len(records)
    left_out = [
        LeftOut(slug=record.slug, reason=reason, whole=True)
        for record, reason in zip(records, reasons, strict=True)
        if reason
    ]
    counted = [record for record, reason in zip(records, reasons, strict=True) if not reason]
    values = [of_record(record) for record in counted]
    split = [_reason(record, Role.INSTRUMENTED) for record in counted]
    if not all(split):
        for number, reason in enumerate(split):
            if reason:
                slug = counted[number].slug
                left_out.append(LeftOut(slug=slug, reason=reason, whole=False))
                values[number] = _without_split(values[number])
    return CountedRuns(tuple(counted), tuple(values), tuple(left_out))


def _reason(record: Record, role: Role) -> str:
    return "; ".join(cause.text for cause in outside_causes(record, role))


def _without_split(values: RunValues) -> RunValues:
    """Return the values of a run without those of its instrumented epoch."""
    return msgspec.structs.replace(
        values,
        compute_s=None,
        communication=CommunicationTimes(cost_s=values.communication.cost_s),
        gradients=GradientTraffic(),
        phases=PhaseTimes(),
    )
