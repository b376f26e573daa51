"""Checks for cells of a study that ran on the same node at the same time."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from hpml_jobs.core.check_result import TIMES, Level, Tier
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import counted, utc_time
from hpml_jobs.results.checks.result import NAMED, Observation, check, names

OVERLAP_LIMIT = timedelta(seconds=1)


class Stay(NamedTuple):
    """When a cell ran, and where."""

    slug: str
    started: datetime | None
    ended: datetime | None
    hosts: frozenset[str]
    uuids: frozenset[str]


def _stay_of(record: Record) -> Stay:
    attempt = record.attempt
    ranks = record.ranks
    return Stay(
        slug=record.slug,
        started=utc_time(attempt.started),
        ended=utc_time(attempt.ended),
        hosts=frozenset(attempt.hosts) | {rank.host for rank in ranks},
        uuids=frozenset(uuid for rank in ranks for uuid in rank.device_uuids),
    )


class CellsBeside(NamedTuple):
    """The cells beside one, and the hosts or GPUs that it shares with them.

    `numbers` has a bit for the number of each in the study: there may be a million pairs.
    """

    study: Sequence[Stay]
    numbers: int
    places: frozenset[str]

    @property
    def names(self) -> str:
        """The first few of them, and how many more there are."""
        first = islice(self.stays(), NAMED)
        return names((stay.slug for stay in first), self.numbers.bit_count())

    def stays(self) -> Iterator[Stay]:
        """Yield them in the study's order."""
        left = self.numbers
        while left:
            lowest = left & -left
            yield self.study[lowest.bit_length() - 1]
            left ^= lowest


class Concurrent(NamedTuple):
    """By slug, the stay of each cell, and the others on its hosts, or GPUs, at the same time."""

    stays: dict[str, Stay]
    on_hosts: dict[str, CellsBeside]
    on_devices: dict[str, CellsBeside]


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
) -> dict[str, CellsBeside]:
    """Return by slug the cells that shared a place with it for longer than `least`.

    One sweep over each place: beside a cell are those that begin before it ends, without those that
    end before it begins. Its time grows with the cells, not with the pairs.
    """
    events: dict[str, list[tuple[datetime, bool, int]]] = {}
    for number, stay in enumerate(study):
        if stay.started and stay.ended and stay.ended - stay.started > least:
            of_stay = (stay.started, True, number), (stay.ended - least, False, number)
            for place in where(stay):
                events.setdefault(place, []).extend(of_stay)
    beside = [0] * len(study)
    places = defaultdict[int, list[str]](list)
    for place, of_place in events.items():
        for number, others in _others_at(sorted(of_place)).items():
            beside[number] |= others
            places[number].append(place)
    return {
        study[number].slug: CellsBeside(study, beside[number], frozenset(of_stay))
        for number, of_stay in places.items()
    }


def _others_at(events: Iterable[tuple[datetime, bool, int]]) -> dict[int, int]:
    """Return the cells beside each one at a place, as bits; of equal times the end is first."""
    begun = ended = 0
    ended_before = {}
    beside = {}
    for _, begins, number in events:
        bit = 1 << number
        if begins:
            begun |= bit
            ended_before[number] = ended
            continue
        ended |= bit
        others = begun ^ ended_before[number] ^ bit
        if others:
            beside[number] = others
    return beside


@check("overlap", Level.WARN, Tier.NUMBER, *TIMES)
def overlapping_cells(
    record: Record, concurrent: Concurrent
) -> list[Observation | None]:
    """Another cell of the study ran on the same node at the same time: cells on one node slow each
    other down 1.5 to 3 times. Or it used the same GPUs: the time of neither is its own.

    Limit: {OVERLAP_LIMIT.seconds} s of overlap on a node, none on a GPU
    Fix: resubmit the cells with cluster.isolate=serial (rerun=true), or both cells (rerun=true)
    """
    stay = concurrent.stays[record.slug]
    return [_on_nodes(stay, concurrent.on_hosts), _on_gpus(stay, concurrent.on_devices)]


def _on_nodes(stay: Stay, neighbours: Mapping[str, CellsBeside]) -> Observation | None:
    if not (stay.started and stay.ended and stay.hosts):
        return None
    beside = neighbours.get(stay.slug)
    if beside is None:
        hosts = names(sorted(stay.hosts))
        return Observation(True, f"no other cell of the study ran on {hosts}")
    seconds = _longest(stay.started, stay.ended, beside.stays()).total_seconds()
    where = names(sorted(beside.places))
    return Observation(
        False,
        f"{beside.names} ran on {where} for up to {seconds:.0f} s of it",
        "resubmit the cells with cluster.isolate=serial (rerun=true)",
    )


def _longest(started: datetime, ended: datetime, others: Iterable[Stay]) -> timedelta:
    """Return the longest time that one of the others ran between two times."""
    longest = timedelta(0)
    for other in others:
        if other.started and other.ended:
            both = min(ended, other.ended) - max(started, other.started)
            longest = max(longest, both)
        if longest == ended - started:
            break
    return longest


def _on_gpus(stay: Stay, neighbours: Mapping[str, CellsBeside]) -> Observation | None:
    if not (stay.uuids and stay.started and stay.ended):
        return None
    beside = neighbours.get(stay.slug)
    if beside is None:
        gpus = counted(len(stay.uuids), "GPU")
        return Observation(True, f"no other cell of the study used its {gpus}")
    text = f"{beside.names} used the same GPUs at the same time"
    return Observation(False, text, "resubmit both cells (rerun=true)")
