"""All checks of a study: of each record alone, of a row, and of the runs of a table."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import msgspec

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import CheckResult, Level, Tier
from hpml_jobs.core.record import Record
from hpml_jobs.core.value import by_key
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.checks import (
    comparability,
    correctness,
    disturbed,
    hardware,
    quality,
    waiting,
)
from hpml_jobs.results.checks.comparison import ComparedRun, runs_of
from hpml_jobs.results.checks.disturbed import concurrent_cells
from hpml_jobs.results.checks.result import Check
from hpml_jobs.results.groups import ConditionGroup, complete_groups, with_checks

OF_RECORD: Mapping[str, tuple[Check[[Record]], ...]] = {
    "Correctness": (
        correctness.unaccounted_time,
        correctness.other_model,
        correctness.impossible_loss,
        correctness.replicas_differ,
    ),
    "Communication": (correctness.wrong_message_bytes,),
    "Waiting": (waiting.imbalance, waiting.loader_bound),
    "Disturbance": (disturbed.epochs_disturbed, disturbed.epochs_differ),
    "Data quality": (
        hardware.oversubscribed,
        hardware.throttled,
        hardware.shared_gpus,
        hardware.unhealthy,
        hardware.little_used,
        quality.too_few_iterations,
        quality.buffers_differ,
        quality.ended_after_training,
        quality.speed_drifts,
    ),
}
MEASURED = tuple(check for checks in OF_RECORD.values() for check in checks)
"""Those that a measured record alone allows."""

OF_IMPORTED = (
    waiting.loader_bound,
    quality.too_few_iterations,
)
"""Those of them that an imported record allows."""

OF_COMPARISON: tuple[Check[[ComparedRun]], ...] = (
    comparability.other_conditions,
    comparability.too_efficient,
    comparability.other_threads,
    comparability.scattered_repeats,
    comparability.other_epoch,
)

GROUPS: Mapping[str, Sequence[Check[Any]]] = {
    **OF_RECORD,
    "Comparability": OF_COMPARISON,
    "Concurrency": (disturbed.overlapping_cells,),
}
"""Every check once, by what it is about, in the order of the report."""


def check_record(record: Record) -> tuple[CheckResult, ...]:
    """Return the results of the checks that one record alone allows."""
    if record.outcome is not Outcome.OK:
        return ()
    checks = MEASURED if record.cell.origin.has_ranks else OF_IMPORTED
    results = [(check, result) for check in checks for result in check(record)]
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
        other.check in check.explained_by
        and other.tier is not Tier.LIST
        and {*result.affects} <= {*other.affects}
        for other in violated
    )


def check_study(
    groups: Sequence[ConditionGroup], slugs: Iterable[str]
) -> dict[str, tuple[CheckResult, ...]]:
    """Return by slug the results of each record's own checks and of those beside others.

    `slugs` is the order of the study, by which the first of several cells are named.
    """
    numbers = {slug: number for number, slug in enumerate(slugs)}
    tables = runs_of(groups, numbers)
    runs = sorted(run for table in tables for run in table.runs)
    results = {run.slug: check_record(run.record) for run in runs}
    rows = chain.from_iterable(table.counted.values() for table in tables)
    for counted in rows:
        if len(counted) > 1:
            results |= judge_row({run.slug: results[run.slug] for run in counted})
    concurrent = concurrent_cells(run.record for run in runs)
    for run in runs:
        for check in OF_COMPARISON:
            results[run.slug] += (*check(run),)
        if len(runs) > 1:
            beside = disturbed.overlapping_cells(run.record, concurrent)
            results[run.slug] += (*beside,)
    return results


def checked_groups(cells: Sequence[CellResult]) -> list[ConditionGroup]:
    """Return a study's condition groups in fixed order, each with its checks by slug."""
    groups = complete_groups(cells)
    check_results = check_study(groups, [cell_result.slug for cell_result in cells])
    return [
        msgspec.structs.replace(
            group, checks=check_results, rows=with_checks(group.rows, check_results)
        )
        for group in groups
    ]


def judge_row(
    results: Mapping[str, tuple[CheckResult, ...]],
) -> dict[str, tuple[CheckResult, ...]]:
    """Return the results of a row's runs, where what has a share is judged by its median, once.

    The warning of the run in the middle holds for all runs; those of others are only in the list.
    Shares of something else, of another rank for example, count as negative.
    """
    listed = chain.from_iterable(results.values())
    shares = by_key(
        (result.check, result) for result in listed if result.share is not None
    )
    middle = {check: _middle(of_runs) for check, of_runs in shares.items()}
    return {
        slug: tuple(_of_row(result, middle.get(result.check)) for result in of_run)
        for slug, of_run in results.items()
    }


def _middle(results: Sequence[CheckResult]) -> CheckResult | None:
    """Return the warning of a row by its median share; None without one."""
    warnings = {
        result.about: result for result in results if result.level is not Level.PASS
    }
    for about in warnings:
        signed = [
            (r.share if r.about == about else -(r.share or 0), r) for r in results
        ]
        _, middle = sorted(signed, key=itemgetter(0))[(len(results) - 1) // 2]
        if middle.level is not Level.PASS and middle.about == about:
            return middle
    return None


def _of_row(result: CheckResult, middle: CheckResult | None) -> CheckResult:
    if result.share is None:
        return result
    if middle or result.level is Level.PASS:
        return middle or result
    return msgspec.structs.replace(result, tier=Tier.LIST)
