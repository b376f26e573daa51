"""The columns of a CSV file of timings: how a row is read, and which times a rate means."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, get_type_hints

from hpml_jobs.core.built_in import (
    UNREPORTED_DATA,
    UNREPORTED_IMAGES,
    UNREPORTED_SAMPLES,
    UNREPORTED_TOKENS,
)
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.formulas import samples_processed
from hpml_jobs.core.text import one_of
from hpml_jobs.core.validation import LONGEST_S
from hpml_jobs.core.value import Value
from hpml_jobs.core.workload import WORK_SAMPLES
from hpml_jobs.extras.exchange.csv_rows import (
    ColumnSpec,
    FieldError,
    number,
    share,
    whole,
)


class Rules(Value, frozen=True, kw_only=True):
    """How the rows of a file are read; a row's own columns take precedence.

    `names` is the pattern of the names of runs.
    """

    batch_is_global: bool = False
    rate_is_per_gpu: bool = False
    unit: str | None = None
    images: int | None = None
    iterations: int | None = None
    parameters: int | None = None
    gpus_per_node: int | None = None
    names: str | None = None


class RowError(HpmlError):
    """A row is invalid; `faults` are all reasons."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of a row; None or "" is an absent or blank field. Times are in seconds."""

    gpus: int
    batch: int
    epoch_s: float | None = None
    rate: float | None = None
    unit: str | None = None
    strategy: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    train_s: float | None = None
    compute_s: float | None = None
    comm_s: float | None = None
    repeat: int = 0
    parameters: int | None = None
    images: int | None = None
    samples: int | None = None
    iterations: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    model: str = ""
    gpu_model: str | None = None
    date: str | None = None


_READERS: dict[Any, Callable[[str], float | int | str]] = {
    int: whole,
    int | None: whole,
    float | None: number,
    str: str,
    str | None: str,
}

COLUMNS = {
    name: ColumnSpec(
        share if name == "accuracy" else _READERS[kind],
        required=name in ("gpus", "batch", "epoch_s"),
        instead="rate" if name == "epoch_s" else None,
        may_be_zero=name in ("comm_s", "repeat", "loss", "accuracy"),
    )
    for name, kind in get_type_hints(Fields).items()
}
"""A column for each field: the type says how it is read."""

SECONDS, STAMPS = ("seconds", "epoch_s"), ("timestamp", "_timestamp")
"""The names of a history's and a chart's columns of times: of an epoch, and of a row's moment."""

OF_AN_EPOCH = ("epoch_s", "train_s", "compute_s", "comm_s", "iterations")
"""Columns that cannot be beside a rate."""


def read_fields(texts: dict[str, str], columns: Collection[str]) -> Fields:
    """Read the fields of a row, blank ones left out, of a file with these columns.

    Raises:
        RowError: required fields are missing, fields cannot be read or contradict each other; all
            are named.
    """
    values: dict[str, Any] = {}
    faults = [*_missing(texts, columns), *_given_twice(texts)]
    for name, text in texts.items():
        try:
            values[name] = COLUMNS[name].read(text)
        except FieldError as error:
            faults.append(f"{name}={text}: {error}")
    if faults:
        raise RowError(faults)
    return Fields(**values)


def _missing(texts: Mapping[str, str], columns: Collection[str]) -> Iterator[str]:
    """Yield a fault for each required field that is blank, as are those that may replace it."""
    for name, column in COLUMNS.items():
        names = [n for n in (name, column.instead) if n and n in columns]
        if column.required and texts.keys().isdisjoint(names):
            yield f"{' or '.join(names)} is missing"


def _given_twice(texts: Mapping[str, str]) -> Iterator[str]:
    """Yield a fault for each two fields of which a row may have one."""
    if "rate" in texts:
        for name in OF_AN_EPOCH:
            if name in texts:
                yield f"rate and {name}: give one of them"
    if {"images", "samples"} <= texts.keys():
        yield "images and samples are the same: give one of them"


class RateUnit(StrEnum):
    """Units of a rate: of a throughput, or of an iteration of all GPUs together."""

    IMAGES = "images/s"
    SAMPLES = "samples/s"
    TOKENS = "tokens/s"
    ITERATION = "s/iteration"

    def data(self, images: int | None) -> str:
        """Return the data of a workload with such samples, so many in an epoch if that is known.

        Times of other work than an epoch are never those of the same workload as epochs.
        """
        match self:
            case RateUnit.IMAGES:
                return UNREPORTED_IMAGES if images is None else UNREPORTED_DATA
            case RateUnit.TOKENS:
                return UNREPORTED_TOKENS
            case _:
                return UNREPORTED_SAMPLES


def is_throughput(unit: str | None) -> bool:
    """Return whether a row's unit is one per second, whose rate may be that of one GPU."""
    return unit not in (None, RateUnit.ITERATION)


def read_unit(text: str | None) -> RateUnit:
    """Return the unit of that name.

    Raises:
        UsageError: there is none.
    """
    units = [unit.value for unit in RateUnit]
    if text is None:
        raise UsageError(
            f"unit is missing: add a column unit or unit= ({', '.join(units)})"
        )
    if re.match(r"(it|iter|iterations?|steps?|batch(es)?)/s", text.lower()):
        raise UsageError(
            f"unit={text}: give the seconds of an iteration, 1 / rate, as s/iteration"
        )
    if text not in units:
        raise UsageError(f"unit={text}: {one_of(text, units)}")
    return RateUnit(text)


class Times(NamedTuple):
    """Seconds of `work_samples` (None: of an epoch), and of an iteration where that is known."""

    epoch_s: float
    work_samples: int | None
    step_s: float | None


def rate_of_step(processes: int, batch: int, step_s: float) -> float:
    """Return the throughput of all processes in samples/s, if an iteration takes step_s.

    >>> rate_of_step(4, 128, 0.25)
    2048.0
    """
    return processes * batch / step_s


def time_at_rate_s(samples: int, rate: float) -> float:
    """Return the seconds that so many samples take at a throughput of all processes.

    >>> time_at_rate_s(1_000_000, 2_000.0)
    500.0
    """
    return samples / rate


def times(rate: float, unit: RateUnit, cell: Cell, *, per_gpu: bool) -> Times:
    """Return the times that follow from a rate.

    A rate in samples is divided by the samples of a batch; a batch counts sequences where samples
    are tokens, so there the duration of an iteration stays unknown.

    Raises:
        UsageError: the rate is that of no training.
    """
    step_s: float | None = None
    in_all = rate * cell.gpus if per_gpu else rate
    if unit is RateUnit.ITERATION:
        step_s = rate
        in_all = rate_of_step(cell.gpus, cell.batch, rate)
    elif unit is not RateUnit.TOKENS:
        step_s = time_at_rate_s(cell.gpus * cell.batch, in_all)
    work: int | None = WORK_SAMPLES
    samples = WORK_SAMPLES
    if cell.workload.images is not None:
        work, samples = None, samples_processed(cell.workload.images, cell.processes)
    epoch_s = time_at_rate_s(samples, in_all)
    if not 0 < epoch_s <= LONGEST_S:
        raise UsageError(
            f"rate={rate:g} {unit.value}: {samples:,} samples would take {epoch_s:g} s"
        )
    return Times(epoch_s, work, step_s)
