"""Checks for cells of a study that ran on the same node at the same time."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from hpml_jobs.core.check_result import TIMES, Level, Tier
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import counted
from hpml_jobs.results.checks.result import Observation, check, names

OVERLAP_S = 1


class Stay(NamedTuple):
    """When a cell ran, and where; `number` is its place in the study."""

    number: int
    slug: str
    started: datetime
    ended: datetime
    hosts: frozenset[str]
    uuids: frozenset[str]

    def seconds_with(self, other: "Stay") -> float:
        """Return how long both ran."""
        both = min(self.ended, other.ended) - max(self.started, other.started)
        return both.total_seconds()


class Concurrent(NamedTuple):
    """The stay of a cell, and the others that ran at the same time, in the study's order."""

    stay: Stay
    others: Sequence[Stay]


def concurrent_cells(records: Iterable[Record]) -> dict[str, Concurrent]:
    """Return by slug which measured cells of a study ran beside which."""
    stays = []
    for number, record in enumerate(records):
        if span := record.attempt.span:
            hosts = {*record.attempt.hosts, *(rank.host for rank in record.ranks)}
            uuids = {uuid for rank in record.ranks for uuid in rank.device_uuids}
            where = frozenset(hosts), frozenset(uuids)
            stays.append(Stay(number, record.slug, *span, *where))
    beside: dict[str, list[Stay]] = {stay.slug: [] for stay in stays}
    running: list[Stay] = []
    for stay in sorted(stays, key=lambda stay: stay.started):
        running = [other for other in running if other.ended > stay.started]
        for other in running:
            beside[stay.slug].append(other)
            beside[other.slug].append(stay)
        running.append(stay)
    return {stay.slug: Concurrent(stay, sorted(beside[stay.slug])) for stay in stays}


@check("overlap", Level.WARN, Tier.NUMBER, *TIMES)
def overlapping_cells(
    record: Record, concurrent: Mapping[str, Concurrent]
) -> list[Observation | None]:
    """Another cell of the study ran on the same node at the same time: cells on one node slow each
    other down 1.5 to 3 times. Or it used the same GPUs: the time of neither is its own.

    Limit: {OVERLAP_S} s of overlap on a node, none on a GPU
    Fix: resubmit the cells with cluster.isolate=serial (rerun=true), or both cells (rerun=true)
    """
    of_cell = concurrent.get(record.slug)
    return [_on_nodes(*of_cell), _on_gpus(*of_cell)] if of_cell else []


def _on_nodes(stay: Stay, others: Sequence[Stay]) -> Observation | None:
    if not stay.hosts:
        return None
    near = [other for other in others if other.hosts & stay.hosts]
    beside = [other for other in near if stay.seconds_with(other) > OVERLAP_S]
    if not beside:
        hosts = names(sorted(stay.hosts))
        return Observation(True, f"no other cell of the study ran on {hosts}")
    shared = {host for other in beside for host in other.hosts & stay.hosts}
    seconds = max(map(stay.seconds_with, beside))
    slugs = names(other.slug for other in beside)
    return Observation(
        False,
        f"{slugs} ran on {names(sorted(shared))} for up to {seconds:.0f} s of it",
        "resubmit the cells with cluster.isolate=serial (rerun=true)",
    )


def _on_gpus(stay: Stay, others: Sequence[Stay]) -> Observation | None:
    if not stay.uuids:
        return None
    beside = [other.slug for other in others if other.uuids & stay.uuids]
    if not beside:
        gpus = counted(len(stay.uuids), "GPU")
        return Observation(True, f"no other cell of the study used its {gpus}")
    text = f"{names(beside)} used the same GPUs at the same time"
    return Observation(False, text, "resubmit both cells (rerun=true)")
