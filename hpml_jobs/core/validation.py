"""Reading a record, of older schemas too: incomplete, unknown or impossible ones are refused."""

from itertools import chain
from typing import Any

import msgspec

from hpml_jobs.core.cell import Cell, Outcome
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.formulas import closure, iterations, samples_processed
from hpml_jobs.core.measurements import TRAINING, Epoch, Role
from hpml_jobs.core.quantization import record_fault
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import SCHEMA, Record
from hpml_jobs.core.value import (
    Document,
    UnreadableSchemaError,
    Upgrade,
    decode_upgraded,
    known,
)

LONGEST_S = 1e9
"""Longest duration in a record, in seconds (30 years)."""

LARGEST = 1e100
"""Largest number in a record: sums and products of such numbers do not overflow."""

NOT_NEGATIVE = ("_s", "bytes", "count", "joules")
"""Ends of the names of durations, sizes, counts and energies."""

CLOCKS_APART = 1.01
"""Iterations and epochs are timed by two clocks, whose ratio is at most this."""

SLACK_S = 0.01
"""Seconds by which the two may begin and end apart."""


class InvalidRecordError(HpmlError):
    """A record that must not be used, with the reason."""


def _name_instruments(record: Document) -> Document:
    """Upgrade schema 3 to 4: two fields have the names of their instruments."""
    record = dict(record)
    if "probe" in record:
        record["microbenchmark"] = record.pop("probe")
    ranks = [*map(dict, record.get("ranks", ()))]
    for rank in ranks:
        if "trace" in rank:
            rank["profiler"] = rank.pop("trace")
    return record | {"ranks": ranks}


def _add_optional_fields(record: Document) -> Document:
    """Upgrade schema 4 to 5, and 5 to 6: new fields are None where they were not measured."""
    return record


def _remove_profiler(record: Document) -> Document:
    """Upgrade schema 6 to 7: ranks have no times by torch.profiler."""
    ranks = [*map(dict, record.get("ranks", ()))]
    for rank in ranks:
        rank.pop("profiler", None)
    return record | {"ranks": ranks}


UPGRADES: dict[int, Upgrade] = {
    3: _name_instruments,
    4: _add_optional_fields,
    5: _add_optional_fields,
    6: _remove_profiler,
}
"""From each released schema to the next one. Schema 3 is the first that stays readable."""


def decode(text: bytes, place: str) -> Record:
    """Read a record and check its form: ranks, epochs, counts and finite numbers.

    Raises:
        InvalidRecordError: it is half written, of another schema, or its values are impossible.
    """
    try:
        record = decode_upgraded(text, Record, SCHEMA, UPGRADES)
    except UnreadableSchemaError as fault:
        raise InvalidRecordError(f"{place} has record {fault}") from fault
    # not UTF-8, not JSON, not a record, not a cell
    except (ValueError, UsageError) as fault:
        raise InvalidRecordError(f"{place} is not a whole record: {fault}") from fault
    if fault_text := _fault(record):
        raise InvalidRecordError(f"{place}: {fault_text}")
    return record


def _fault(record: Record) -> str | None:
    """Return the first fault of a decoded record, or None."""
    if record.outcome is Outcome.OOM:
        return None
    if record.outcome is not Outcome.OK:
        return f"outcome {record.outcome.value} has no record"
    impossible = out_of_range(msgspec.to_builtins(record))
    if impossible:
        return impossible
    imported = record.imported
    has_ranks = record.cell.origin.has_ranks
    if has_ranks is not (imported is None) or (imported and record.ranks):
        return "an imported timing and a measurement in one record"
    if imported is not None and imported.rate is not None:
        return "its time is from a rate: import the file again, with epoch_s"
    if imported is not None:
        return None if imported.epoch_s > 0 else f"epoch_s={imported.epoch_s} s"
    return _fault_of_measured(record)


def _fault_of_measured(record: Record) -> str | None:
    if record.model is None or record.facts is None:
        return "outcome ok without model and facts"
    cell, present = record.cell, [rank.rank for rank in record.ranks]
    if present != [*range(cell.processes)]:
        return f"ranks {present} are there, {cell.processes} were expected"
    if cell.workload.images is None and cell.origin.has_fixed_epochs:
        return f"the number of training {cell.workload.samples_name} is missing"
    epochs = range(1, len(record.ranks[0].epochs) + 1)
    faults = chain(
        (_rank_fault(cell, rank) for rank in record.ranks),
        (_share_fault(number, record) for number in epochs),
        [record_fault(record)],
    )
    return next(filter(None, faults), None)


def _share_fault(number: int, record: Record) -> str | None:
    """Return what is wrong with the ranks' shares of the test set; together they are all of it."""
    name, whole = record.cell.workload.samples_name, record.ranks[0].test_samples
    epochs = [
        rank.epochs[number - 1] for rank in record.ranks if len(rank.epochs) >= number
    ]
    shares = known(epoch.share for epoch in epochs)
    if not shares:
        is_wanted = record.cell.evaluate and epochs[0].role != Role.UNSYNCED and whole
        return f"epoch {number} was not evaluated" if is_wanted else None
    tested = sum(share.samples for share in shares)
    if len(shares) < len(record.ranks) or tested != whole:
        return f"all ranks together tested {tested} {name} after epoch {number}, not {whole}"
    if any(s.correct is not None and not 0 <= s.correct <= s.samples for s in shares):
        return f"more {name} are right than were tested after epoch {number}"
    return None


def out_of_range(value: Any) -> str | None:
    """Return the first number that is not finite or too large, or a negative duration or count."""
    fault = _out_of_range(value)
    return fault and fault.removeprefix(".")


def _out_of_range(value: Any) -> str | None:
    """Return the fault of nested values after its place; most of a record's reading is here."""
    is_mapping = isinstance(value, dict)
    for key, inner in value.items() if is_mapping else enumerate(value):
        kind = type(inner)
        if kind is float or kind is int:
            if 0 <= inner <= LONGEST_S:  # nearly always
                continue
            fault = _number_fault(inner, str(key))
        elif kind is dict or kind is list or kind is tuple:
            fault = _out_of_range(inner)
        else:
            continue
        if fault:
            return f".{key}{fault}" if is_mapping else f"[{key}]{fault}"
    return None


def _number_fault(number: float, name: str) -> str | None:
    if not -LARGEST <= number <= LARGEST:
        return f" is not a number from {-LARGEST:g} to {LARGEST:g}"
    if number > LONGEST_S and name.endswith("_s"):
        return f" is {number:g} s, more than {LONGEST_S:g} s"
    is_wrong = number < 0 and name.endswith(NOT_NEGATIVE)
    return f" is negative: {number}" if is_wrong else None


def _rank_fault(cell: Cell, rank: Rank) -> str | None:
    """Return what is wrong with one rank: its epochs, their times, or their counts."""
    roles = [epoch.role for epoch in rank.epochs]
    wanted = list(TRAINING[: cell.protocol.epochs])
    if roles[: len(wanted)] != wanted:
        named = {"warmup": "warm-up"}
        words = " and ".join(named.get(role, role) for role in wanted)
        return f"rank {rank.rank} has no {words} epoch"
    faults = map(_epoch_fault, rank.epochs)
    if fault := next(filter(None, faults), None):
        return f"rank {rank.rank}: {fault}"
    images = cell.workload.images
    if images is None:  # of a script
        return None
    expected = iterations(images, cell.gpus, cell.batch, cell.path.accumulate)
    share = samples_processed(images, cell.processes) // cell.processes
    for epoch in rank.epochs:
        counted = (
            ("iterations", epoch.iterations, expected),
            ("samples", epoch.samples, share),
        )
        for what, number, right in counted:
            if number != right:
                where = f"rank {rank.rank} counted {number} {what} in its {epoch.role} epoch"
                return f"{where}, not {right}"
    return None


def _epoch_fault(epoch: Epoch) -> str | None:
    if epoch.epoch_s <= 0 or not 0 <= epoch.stall_s <= epoch.epoch_s:
        return f"impossible times in the {epoch.role} epoch: {epoch.epoch_s} s, {epoch.stall_s} s"
    steps = epoch.steps if epoch.role == Role.TIMED else None
    least_s = steps.median_s * (epoch.iterations // 2) if steps else 0.0
    if least_s > CLOCKS_APART * epoch.epoch_s + SLACK_S:
        return (
            f"impossible times in the {epoch.role} epoch: {epoch.epoch_s} s, but its "
            f"{epoch.iterations} iterations took at least {least_s:.4g} s"
        )
    if epoch.role == Role.INSTRUMENTED:
        if epoch.phases is None or epoch.closure is None:
            return "the instrumented epoch has no phases"
        if abs(closure(epoch.epoch_s, epoch.phases.parts_s) - epoch.closure) > 1e-6:
            return f"closure {epoch.closure} is not that of the phases"
    return None
