"""Checks for cells of a study that ran on the same node at the same time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from hpml_jobs.checks.result import Observation, check, names
from hpml_jobs.core.check_result import TIMES, Level, Tier
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import counted, utc_time

OVERLAP_LIMIT = timedelta(seconds=1)


class Stay(NamedTuple):
    """When a cell ran, and where."""

    slug: str
    started: datetime | None
    ended: datetime | None
    hosts: frozenset[str]
    uuids: frozenset[str]


def _stay_of(record: Record) -> Stay:
    attempt, ranks = record.attempt, record.ranks
    return Stay(
        slug=record.slug,
        started=utc_time(attempt.started),
        ended=utc_time(attempt.ended),
        hosts=frozenset(attempt.hosts) | {rank.host for rank in ranks},
        uuids=frozenset(uuid for rank in ranks for uuid in rank.device_uuids),
    )


class Concurrent(NamedTuple):
    """By slug, the stay of each cell, and the others on its hosts, or GPUs, at the same time."""

    stays: dict[str, Stay]
    on_hosts: dict[str, list[Stay]]
    on_devices: dict[str, list[Stay]]


def concurrent_cells(records: Iterable[Record]) -> Concurrent:
    """Return which measured cells of a study ran beside which; on a host for longer than 1 s."""
    stays = list(map(_stay_of, records))
    return Concurrent(
        {stay.slug: stay for stay in stays},
        _concurrent(stays, lambda stay: stay.hosts, OVERLAP_LIMIT),
        _concurrent(stays, lambda stay: stay.uuids, timedelta(0)),
    )


def _concurrent(
    study: Sequence[Stay], where: Callable[[Stay], frozenset[str]], least: timedelta
) -> dict[str, list[Stay]]:
    """Return the cells that shared a place for longer than `least`, in the study's order.

    One sweep from the first start to the last; its time grows with the cells, and with the pairs
    that are found.
    """
    spans = [
        (stay.started, stay.ended, number)
        for number, stay in enumerate(study)
        if stay.started and stay.ended and stay.ended - stay.started > least
    ]
    running: dict[str, list[tuple[datetime, int]]] = {}
    beside: dict[int, set[int]] = {number: set() for _, _, number in spans}
    for started, ended, number in sorted(spans):
        for place in where(study[number]):
            still = [entry for entry in running.get(place, ()) if entry[0] - started > least]
            for _, other in still:
                beside[number].add(other)
                beside[other].add(number)
            running[place] = [*still, (ended, number)]
    return {
        study[number].slug: [study[other] for other in sorted(others)]
        for number, others in beside.items()
    }


@check("overlap", Level.WARN, Tier.NUMBER, *TIMES)
def overlapping_cells(record: Record, concurrent: Concurrent) -> list[Observation | None]:
    """Another cell of the study ran on the same node at the same time: cells on one node slow each
    other down 1.5 to 3 times. Or it used the same GPUs: the time of neither is its own.

    Limit: {OVERLAP_LIMIT.seconds} s of overlap on a node, none on a GPU
    Fix: resubmit the cells with cluster.isolate=serial (rerun=true), or both cells (rerun=true)
    """
    stay = concurrent.stays[record.slug]
    return [_on_nodes(stay, concurrent.on_hosts), _on_gpus(stay, concurrent.on_devices)]


def _on_nodes(stay: Stay, neighbours: Mapping[str, Sequence[Stay]]) -> Observation | None:
    if not (stay.started and stay.ended and stay.hosts):
        return None
    others = neighbours.get(stay.slug)
    if not others:
        return Observation(True, f"no other cell of the study ran on {names(sorted(stay.hosts))}")
    seconds = _longest(stay.started, stay.ended, others).total_seconds()
    shared = stay.hosts.intersection(host for other in others for host in other.hosts)
    beside_it, where = names(other.slug for other in others), names(sorted(shared))
    return Observation(
        False,
        f"{beside_it} ran on {where} for up to {seconds:.0f} s of it",
        "resubmit the cells with cluster.isolate=serial (rerun=true)",
    )


def _longest(started: datetime, ended: datetime, others: Iterable[Stay]) -> timedelta:
    """Return the longest time that one of the others ran between two times."""
    longest = timedelta(0)
    for other in others:
        if other.started and other.ended:
            longest = max(longest, min(ended, other.ended) - max(started, other.started))
        if longest == ended - started:
            break
    return longest


def _on_gpus(stay: Stay, neighbours: Mapping[str, Sequence[Stay]]) -> Observation | None:
    if not (stay.uuids and stay.started and stay.ended):
        return None
    others = neighbours.get(stay.slug)
    if not others:
        gpus = counted(len(stay.uuids), "GPU")
        return Observation(True, f"no other cell of the study used its {gpus}")
    return Observation(
        False,
        f"{names(other.slug for other in others)} used the same GPUs at the same time",
        "resubmit both cells (rerun=true)",
    )
