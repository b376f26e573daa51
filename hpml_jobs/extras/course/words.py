"""The words that all answers to questions of the lab share."""

from collections import Counter
from collections.abc import Callable, Sequence

from hpml_jobs.checks.result import names
from hpml_jobs.core.cell import Cell, Outcome, Protocol
from hpml_jobs.core.check_result import Affected, Level
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.text import PROGRAM, counted, listed
from hpml_jobs.report.frame.captions import cell_words
from hpml_jobs.report.frame.learning import Mean
from hpml_jobs.report.page.formats import Answer
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row


def unanswered(question: str, title: str, why: str) -> Answer:
    """Return a question without an answer, with the reason and the key that would measure it."""
    return Answer(question, title, f"Not measured: {why}.", is_answered=False)


def need(group: ConditionGroup, is_needed: Callable[[Cell], bool], text: str) -> str:
    """Return what a question needs: what became of such cells that have no number, else a text."""
    outcomes = [
        result.outcome
        for result in group.cells
        if result.cell and is_needed(result.cell)
    ]
    lost = Counter(outcome for outcome in outcomes if outcome is not Outcome.OK)
    if not lost:
        return text
    parts = [
        f"{number} of {len(outcomes)} {_BECAME.get(outcome, outcome.value)}"
        for outcome, number in lost.items()
    ]
    return f"its cells were submitted; {listed(parts)} ({STATUS})"


STATUS = f"{PROGRAM} status"
"""The command that shows why cells have no number; `answers` adds the study."""

_BECAME = {
    Outcome.OOM: "ended with OOM",
    Outcome.TIMEOUT: "reached the time limit",
    Outcome.NODE_FAIL: "ended with a node failure",
}
"""What became of cells, where the outcome alone is no predicate."""


def is_parallel(cell: Cell) -> bool:
    """Return whether a cell has several GPUs."""
    return cell.gpus > 1


def is_instrumented(cell: Cell) -> bool:
    """Return whether a cell has several GPUs and an instrumented epoch."""
    return cell.gpus > 1 and cell.protocol is Protocol.FULL


def unusable(question: str, title: str, evidence: str) -> Answer:
    """Return a question whose cells were measured, and each failed a check."""
    text = "A check failed for every cell of it: see What to trust."
    return Answer(question, title, text, evidence, is_answered=False)


def usable(group: ConditionGroup, rows: Sequence[Row], affected: Affected) -> list[Row]:
    """Return the rows whose numbers of this kind no check calls wrong."""
    return [row for row in rows if group.worst(row, affected) is not Level.FAIL]


def doubt(group: ConditionGroup, rows: Sequence[Row], affected: Affected) -> str:
    """Return which of these rows were left out or are doubtful, as a sentence; empty if none."""
    levels = [group.worst(row, affected) for row in rows]
    failed, warned = levels.count(Level.FAIL), levels.count(Level.WARN)
    parts = (
        [f"{counted(failed, 'cell')} left out, because a check failed"]
        if failed
        else []
    )
    parts += [f"a check warns of {counted(warned, 'cell')}"] if warned else []
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}: see What to trust." if text else ""


def cells(group: ConditionGroup, rows: Sequence[Row]) -> str:
    """Return the first cells of some rows by name, the others counted."""
    cells = names((cell_words(row.place, group.device) for row in rows), separator="; ")
    return f"cells {cells}"


def main_rows(group: ConditionGroup) -> list[Row]:
    """Return the rows on several GPUs that answers are about: ddp's, else the first strategy's."""
    parallel = [row for row in group.timed if row.gpus > 1]
    if not parallel:
        return []
    has_ddp = any(row.strategy is Strategy.DDP for row in parallel)
    main = Strategy.DDP if has_ddp else parallel[0].strategy
    return [row for row in parallel if row.strategy is main]


def compare_means(first: Mean, second: Mean) -> str:
    """Return in words whether two means differ by more than their deviations together.

    >>> compare_means(Mean(0.60, 0.01), Mean(0.65, 0.02))
    'more than the deviations'
    >>> compare_means(Mean(0.60, 0.01), Mean(0.62, 0.02))
    'within the deviations'
    >>> compare_means(Mean(0.60, None), Mean(0.65, 0.02))
    'single seed, not comparable'
    """
    if first.deviation is None or second.deviation is None:
        return "single seed, not comparable"
    beyond = abs(first.mean - second.mean) > first.deviation + second.deviation
    return "more than the deviations" if beyond else "within the deviations"
