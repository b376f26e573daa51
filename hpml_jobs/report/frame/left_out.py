"""Runs with an epoch that something outside of the cell disturbed: left out of a row's medians."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.disturbance import outside_causes
from hpml_jobs.core.measurements import Role, Step
from hpml_jobs.core.record import Record, least_waiting
from hpml_jobs.core.value import Value
from hpml_jobs.report.frame.figures import Figures, figures_of, without


class LeftOut(Value, frozen=True, kw_only=True):
    """A run that medians of its row do not contain, with the outside causes that were measured.

    `role` is the disturbed epoch or step: of the timed one nothing of the run counts, otherwise
    only the values of that epoch do not.
    """

    slug: str
    reason: str
    role: Role | Step

    def holds_for(self, affected: Affected) -> bool:
        """Return whether the row's numbers of this kind do not contain the run."""
        return affected in _WITHOUT[self.role]


_WITHOUT = {
    Role.TIMED: (Affected.TIME, Affected.SPLIT, Affected.BANDWIDTH),
    Role.INSTRUMENTED: (Affected.SPLIT, Affected.BANDWIDTH),
    Role.UNSYNCED: (),  # of Table 2 only the cost of communication
    Step.MICROBENCHMARK: (),  # of Table 3 only what the microbenchmark reached
}


class CountedRuns(NamedTuple):
    """The runs of a row that count, with their values, and those that are left out."""

    records: tuple[Record, ...]
    values: tuple[Figures, ...]
    left_out: tuple[LeftOut, ...]


def counted_runs(records: Sequence[Record]) -> CountedRuns:
    """Leave out disturbed runs where an undisturbed one of the same row exists.

    Runs with slow iterations alone, without a measured outside cause, always count.
    """
    reasons = _reasons_to_leave_out(records, Role.TIMED)
    counted = [record for record in records if record.slug not in reasons]
    without_split = _reasons_to_leave_out(counted, Role.INSTRUMENTED)
    number = least_waiting([record for record in counted if record.slug not in without_split])
    values = {record.slug: figures_of(record, number) for record in counted}
    left_out = [_left_out(reasons, Role.TIMED)]
    for role in (Role.INSTRUMENTED, Role.UNSYNCED, Step.MICROBENCHMARK):
        reasons = _reasons_to_leave_out(counted, role)
        values |= {slug: without(values[slug], role) for slug in reasons}
        left_out.append(_left_out(reasons, role))
    return CountedRuns(tuple(counted), tuple(values.values()), tuple(itertools.chain(*left_out)))


def _reasons_to_leave_out(records: Sequence[Record], role: Role | Step) -> dict[str, str]:
    """Return by slug why the disturbed epochs do not count; empty if all of them are disturbed."""
    reasons = {
        record.slug: "; ".join(cause.text for cause in causes)
        for record in records
        if (causes := outside_causes(record, role))
    }
    return reasons if len(reasons) < len(records) else {}


def _left_out(reasons: Mapping[str, str], role: Role | Step) -> list[LeftOut]:
    return [LeftOut(slug=slug, reason=reason, role=role) for slug, reason in reasons.items()]
