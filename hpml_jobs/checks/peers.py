"""A record with what it is compared by in its study."""

from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cell import Cell, Protocol
from hpml_jobs.core.conditions import Conditions, measured_conditions, remarked_conditions
from hpml_jobs.core.disturbance import outside_causes
from hpml_jobs.core.record import Record


class Peer(NamedTuple):
    """A record with what it is compared by; `table` is what cells of one table have in common."""

    record: Record
    table: tuple[object, ...]
    place: Cell  # the cell, whichever repeat or seed of it
    comparison: tuple[int, str]  # batch, training path: speedups are ratios of equal ones
    epoch_s: float
    train_s: float | None
    conditions: Conditions
    remarks: Conditions
    started: datetime | None
    ended: datetime | None
    hosts: frozenset[str]
    uuids: frozenset[str]
    workers: int
    threads: tuple[int, ...]
    is_baseline: bool  # speedups of its batch divide by it
    is_disturbed: bool  # its timed epoch, by a measured outside cause

    @property
    def slug(self) -> str:
        """The cell's name."""
        return self.record.slug


def peer_of(record: Record) -> Peer:
    """Return a record with what it is compared by."""
    cell = record.cell
    date = record.imported.date if record.imported else None
    return Peer(
        record=record,
        table=(
            *(cell.workload, cell.device, cell.gpu_type, cell.loader),
            cell.protocol is Protocol.IMPORTED,
        ),
        place=msgspec.structs.replace(cell, repeat=0, seed=0),
        comparison=(cell.batch, cell.path.label),
        epoch_s=record.epoch_s,
        train_s=record.train_s,
        conditions=() if record.imported else measured_conditions(record) or (),
        remarks=() if record.imported else remarked_conditions(record),
        started=_moment(date or record.attempt.started),
        ended=_moment(record.attempt.ended),
        hosts=frozenset(record.attempt.hosts) | {rank.host for rank in record.ranks},
        uuids=frozenset(uuid for rank in record.ranks for uuid in rank.device_uuids),
        workers=sum(rank.loader_workers for rank in record.ranks),
        threads=tuple(sorted({rank.threads for rank in record.ranks})),
        is_baseline=cell.is_baseline,
        is_disturbed=bool(outside_causes(record)),
    )


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if not 1970 < moment.year < 9000:  # a clock, or a file, that is wrong
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
