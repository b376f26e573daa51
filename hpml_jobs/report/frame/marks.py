"""Data-quality checks in a table: the mark beside a number; notes under a table."""

from collections.abc import Callable, Iterable

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.measurements import Role, Step
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import counted
from hpml_jobs.report.frame.captions import row_label
from hpml_jobs.report.frame.figures import LeftOut
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import DASH, OOM
from hpml_jobs.report.frame.rows import Place, Row, Setup

MARK = "!"
"""The mark before a number that a check makes doubtful."""

EXPLAINED = f"{MARK} see Data-quality checks"


def mark(text: str, *, is_doubtful: bool) -> str:
    """Return the text of a number with the mark if it is doubtful; it needs a number."""
    return f"{MARK}{text}" if is_doubtful and text not in (DASH, OOM) else text


def marked(
    group: ConditionGroup, row: Row, texts: tuple[str, ...], affected: Affected
) -> tuple[str, ...]:
    """Return a row's texts, the first with the mark if a check of its runs is about them."""
    return mark(texts[0], is_doubtful=group.doubts(row, affected)), *texts[1:]


def explained(group: ConditionGroup, rows: Iterable[Row], affected: Affected) -> list[str]:
    """Return the note on the marks of a table, if it has any."""
    return [EXPLAINED] if any(group.doubts(row, affected) for row in rows) else []


def by_reason(reasons: Iterable[tuple[str, Place]], label: Callable[[Setup], str]) -> list[str]:
    """Return a line for each reason, with all places that it holds for."""
    places: dict[str, list[Place]] = {}
    for reason, place in reasons:
        places.setdefault(reason, []).append(place)
    return [f"{reason}: {places_text(places[reason], label)}" for reason in places]


def places_text(places: Iterable[Place], label: Callable[[Setup], str]) -> str:
    """Return places in words: `2-GPU at batch 32, 128; 4-GPU at batch 512`."""
    batches: dict[Setup, dict[int, None]] = {}
    for place in places:
        batches.setdefault(place.setup, {})[place.batch_per_gpu] = None
    return "; ".join(
        f"{label(setup)} at batch {', '.join(map(str, batches[setup]))}" for setup in batches
    )


def left_out_runs(rows: Iterable[Row], device: Device) -> list[str]:
    """Return a line for every row that leaves runs out of its medians, with the first reason."""
    lines = []
    for row in rows:
        where = f"{row_label(row.setup, device)} at batch {row.batch_per_gpu}"
        by_role: dict[Role | Step, list[LeftOut]] = {}
        for run in row.left_out:
            by_role.setdefault(run.role, []).append(run)
        total = len(row.runs) + len(by_role.get(Role.TIMED, ()))
        lines += [
            f"{where}: {len(runs)} of {counted(total, 'run')} left out of the medians: "
            f"the {role.value}{' epoch' if isinstance(role, Role) else ''} was disturbed: "
            f"{runs[0].reason}"
            for role, runs in by_role.items()
        ]
    return lines
