"""Imported timings as times of an iteration."""

from collections.abc import Iterable

from hpml_jobs.core.record import Record


def imported_step_s(record: Record) -> float | None:
    """Return the seconds of an iteration of an imported row; None without its rate.

    Where samples are tokens, a batch counts sequences of unreported length, and it is the time of
    GPUs x batch tokens: in proportion to an iteration, so that rates are right.
    """
    if record.imported is None:
        return None
    if record.step_s is not None:
        return record.step_s
    samples = record.samples
    return record.cell.gpus * record.cell.batch * record.epoch_s / samples if samples else None


def gpus_per_node(records: Iterable[Record]) -> int | None:
    """Return how many GPUs a node has by the rows of a study; None if they do not say it."""
    of_rows = [
        row.gpus_per_node for row in (r.imported for r in records) if row and row.gpus_per_node
    ]
    return max(of_rows, default=None)
