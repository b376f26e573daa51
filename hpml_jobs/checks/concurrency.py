"""Checks for cells of a study that ran on the same node at the same time."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from hpml_jobs.checks.peers import Peer
from hpml_jobs.checks.result import Observation, check, names
from hpml_jobs.core.check_result import TIMES, Level, Tier
from hpml_jobs.core.text import counted

OVERLAP_LIMIT = timedelta(seconds=1)


class Concurrent(NamedTuple):
    """By slug, the other cells that ran on the same hosts, or GPUs, at the same time."""

    on_hosts: dict[str, list[Peer]]
    on_devices: dict[str, list[Peer]]


def concurrent_cells(study: Sequence[Peer]) -> Concurrent:
    """Return which cells ran beside which; on a host for longer than 1 s."""
    return Concurrent(
        _concurrent(study, lambda peer: peer.hosts, OVERLAP_LIMIT),
        _concurrent(study, lambda peer: peer.uuids, timedelta(0)),
    )


def _concurrent(
    study: Sequence[Peer], where: Callable[[Peer], frozenset[str]], least: timedelta
) -> dict[str, list[Peer]]:
    """Return the cells that shared a place for longer than `least`, in the study's order.

    One sweep from the first start to the last; its time grows with the cells, and with the pairs
    that are found.
    """
    spans = [
        (peer.started, peer.ended, number)
        for number, peer in enumerate(study)
        if peer.started and peer.ended and peer.ended - peer.started > least
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
def overlapping_cells(peer: Peer, concurrent: Concurrent) -> list[Observation | None]:
    """Another cell of the study ran on the same node at the same time: cells on one node slow each
    other down 1.5 to 3 times. Or it used the same GPUs: the time of neither is its own.

    Limit: {OVERLAP_LIMIT.seconds} s of overlap on a node, none on a GPU
    Fix: resubmit the cells with cluster.isolate=serial (rerun=true), or both cells (rerun=true)
    """
    return [_on_nodes(peer, concurrent), _on_gpus(peer, concurrent)]


def _on_nodes(peer: Peer, concurrent: Concurrent) -> Observation | None:
    if peer.record.imported or not (peer.started and peer.ended and peer.hosts):
        return None
    others = concurrent.on_hosts.get(peer.slug)
    if not others:
        return Observation(True, f"no other cell of the study ran on {names(sorted(peer.hosts))}")
    seconds = _longest(peer.started, peer.ended, others).total_seconds()
    where = names(host for host in sorted(peer.hosts) if any(host in o.hosts for o in others))
    return Observation(
        False,
        f"{names(o.slug for o in others)} ran on {where} for up to {seconds:.0f} s of it",
        "resubmit the cells with cluster.isolate=serial (rerun=true)",
    )


def _longest(started: datetime, ended: datetime, others: Iterable[Peer]) -> timedelta:
    """Return the longest time that one of the others ran between two times."""
    longest = timedelta(0)
    for other in others:
        if other.started and other.ended:
            longest = max(longest, min(ended, other.ended) - max(started, other.started))
        if longest == ended - started:
            break
    return longest


def _on_gpus(peer: Peer, concurrent: Concurrent) -> Observation | None:
    if not (peer.uuids and peer.started and peer.ended):
        return None
    others = concurrent.on_devices.get(peer.slug)
    if not others:
        gpus = counted(len(peer.uuids), "GPU")
        return Observation(True, f"no other cell of the study used its {gpus}")
    return Observation(
        False,
        f"{names(other.slug for other in others)} used the same GPUs at the same time",
        "resubmit both cells (rerun=true)",
    )
