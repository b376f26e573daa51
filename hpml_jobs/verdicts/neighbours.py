"""A cell among the others of its study: what they have in common, when and where they ran."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from hpml_jobs.cell import Cell, Protocol, Strategy
from hpml_jobs.record import Record
from hpml_jobs.verdicts.judgement import Verdict, names, warn

APART_LIMIT = timedelta(hours=24)
OVERLAP_LIMIT = timedelta(seconds=1)

Conditions = tuple[tuple[str, object], ...]


class Neighbour(NamedTuple):
    """A record with what it is compared by; `table` is what cells of one table have in common."""

    record: Record
    table: tuple[object, ...]
    place: Cell  # the cell, whichever repeat or seed of it
    conditions: Conditions
    begun: datetime | None
    ended: datetime | None
    hosts: frozenset[str]
    uuids: frozenset[str]
    workers: int
    threads: tuple[int, ...]

    @property
    def slug(self) -> str:
        """The cell's name."""
        return self.record.slug


def neighbour(record: Record) -> Neighbour:
    """A record as its neighbours see it."""
    cell = record.cell
    date = record.imported.date if record.imported else None
    return Neighbour(
        record=record,
        table=(cell.workload, cell.device, cell.gpu_type, cell.protocol is Protocol.IMPORTED),
        place=msgspec.structs.replace(cell, repeat=0, seed=0),
        conditions=_conditions(record),
        begun=_moment(date or record.attempt.started),
        ended=_moment(record.attempt.ended),
        hosts=frozenset(record.attempt.hosts) | {rank.host for rank in record.ranks},
        uuids=frozenset(uuid for rank in record.ranks for uuid in rank.device_uuids),
        workers=sum(rank.loader_workers for rank in record.ranks),
        threads=tuple(sorted({rank.threads for rank in record.ranks})),
    )


def _conditions(record: Record) -> Conditions:
    """The hardware and software of a measurement; the host counts by its kind, not its name."""
    facts = record.facts
    if facts is None or record.imported:
        return ()
    return (
        ("GPU model", facts.gpu_model),
        ("driver", facts.driver),
        ("torch", facts.torch),
        ("CPU model", facts.cpu_model),
        ("CPUs of a host", facts.cpu_count),
        ("hpml_jobs", facts.hpml_jobs),
        ("commit", facts.commit),
        ("uncommitted changes", facts.dirty),
        ("TF32 in matmul", facts.tf32_matmul),
        ("TF32 in cuDNN", facts.tf32_cudnn),
        ("cuDNN benchmark", facts.cudnn_benchmark),
        ("cuDNN deterministic", facts.cudnn_deterministic),
    )


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def baselines(me: Neighbour, others: Sequence[Neighbour]) -> list[Neighbour]:
    """What a cell's speedup divides by: the plain loop on one GPU at the same batch."""
    batch = me.record.cell.batch
    return [
        other
        for other in others
        if other.place.strategy is Strategy.SINGLE and other.place.batch == batch
    ]


def odd(me: Neighbour, unlike: Sequence[Neighbour], others: Sequence[Neighbour]) -> bool:
    """Whether a cell stands apart: from its baseline, or from half of the others or more.

    So one odd cell is named, and not all the others with it.
    """
    if any(other in unlike for other in baselines(me, others)):
        return True
    return bool(unlike) and 2 * len(unlike) >= len(others)


def other_days(me: Neighbour, others: Sequence[Neighbour]) -> Verdict | None:
    """Measured within 24 hours of the cells it is compared with."""
    dated = [(other, other.begun) for other in others if other.begun]
    if me.begun is None or not dated:
        return None
    apart = {o.slug: abs(begun - me.begun) for o, begun in dated}
    far = [other for other, _ in dated if apart[other.slug] > APART_LIMIT]
    longest = max(apart.values()) / timedelta(days=1)
    found = f"measured at most {longest:.1f} days from its neighbours (limit 1)"
    if far:
        found = f"measured up to {longest:.1f} days from {names(o.slug for o in far)} (limit 1)"
    return warn(
        "other-days",
        holds=not odd(me, far, [other for other, _ in dated]),
        found=found,
        advice="machines change from day to day; measure the table in one go (rerun=true)",
    )


def _together(me: Neighbour, other: Neighbour) -> timedelta:
    """How long two attempts ran at the same time; negative where they did not."""
    if not (me.begun and me.ended and other.begun and other.ended):
        return -OVERLAP_LIMIT
    return min(me.ended, other.ended) - max(me.begun, other.begun)


def overlap(me: Neighbour, others: Sequence[Neighbour]) -> Verdict | None:
    """No other cell of the study ran on the cell's nodes at the same time, but for 1 s."""
    if me.record.imported or not (me.begun and me.ended and me.hosts):
        return None
    beside = [o for o in others if me.hosts & o.hosts and _together(me, o) > OVERLAP_LIMIT]
    found = f"no other cell of the study ran on {names(sorted(me.hosts))} meanwhile"
    if beside:
        seconds = max(_together(me, other) for other in beside).total_seconds()
        where = names(sorted(me.hosts & frozenset.union(*(other.hosts for other in beside))))
        found = f"{names(o.slug for o in beside)} ran on {where} for up to {seconds:.0f} s of it"
    return warn(
        "overlap",
        holds=not beside,
        found=found,
        advice="cells on one node slow each other down 1.5 to 3 times; send them again with "
        "cluster.isolate=serial (rerun=true)",
    )


def shared_devices(me: Neighbour, others: Sequence[Neighbour]) -> Verdict | None:
    """No other cell of the study used the cell's GPUs at the same time."""
    if not (me.uuids and me.begun and me.ended):
        return None
    beside = [o for o in others if me.uuids & o.uuids and _together(me, o) > timedelta(0)]
    found = f"no other cell of the study used its {len(me.uuids)} GPUs meanwhile"
    if beside:
        found = f"{names(other.slug for other in beside)} used the same GPUs at the same time"
    return warn(
        "shared-devices",
        holds=not beside,
        found=found,
        advice="two cells shared a GPU, neither time is its own; send both again (rerun=true)",
    )
