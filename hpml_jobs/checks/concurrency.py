"""Who ran at the same time at the same place? Checks of a cell against every cell of its study."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from hpml_jobs.checks.limits import OVERLAP_LIMIT
from hpml_jobs.checks.peers import Peer
from hpml_jobs.checks.result import CheckResult, names, warn


class Meanwhile(NamedTuple):
    """By slug, the other cells that ran on the same hosts, or GPUs, at the same time."""

    on_hosts: dict[str, list[Peer]]
    on_devices: dict[str, list[Peer]]


def meanwhile(study: Sequence[Peer]) -> Meanwhile:
    """Who ran beside whom; on a host for longer than 1 s."""
    return Meanwhile(
        _beside(study, lambda one: one.hosts, OVERLAP_LIMIT),
        _beside(study, lambda one: one.uuids, timedelta(0)),
    )


def _beside(
    study: Sequence[Peer], where: Callable[[Peer], frozenset[str]], least: timedelta
) -> dict[str, list[Peer]]:
    """Cells that were at one place together for longer than `least`, in the study's order.

    One sweep from the first beginning to the last; it grows with the cells, and with the pairs
    that are found.
    """
    spans = [
        (one.begun, one.ended, number)
        for number, one in enumerate(study)
        if one.begun and one.ended and one.ended - one.begun > least
    ]
    running: dict[str, list[tuple[datetime, int]]] = {}
    beside: dict[int, set[int]] = {number: set() for _, _, number in spans}
    for begun, ended, number in sorted(spans):
        for place in where(study[number]):
            still = [known for known in running.get(place, ()) if known[0] - begun > least]
            for _, other in still:
                beside[number].add(other)
                beside[other].add(number)
            running[place] = [*still, (ended, number)]
    return {
        study[number].slug: [study[other] for other in sorted(others)]
        for number, others in beside.items()
    }


def overlap(me: Peer, found: Meanwhile) -> CheckResult | None:
    """No other cell of the study ran on the cell's nodes at the same time, but for 1 s."""
    if me.record.imported or not (me.begun and me.ended and me.hosts):
        return None
    beside = found.on_hosts.get(me.slug)
    told = f"no other cell of the study ran on {names(sorted(me.hosts))} meanwhile"
    if beside:
        seconds = max(_together(me, other) for other in beside).total_seconds()
        where = names(sorted(me.hosts & frozenset.union(*(other.hosts for other in beside))))
        told = f"{names(o.slug for o in beside)} ran on {where} for up to {seconds:.0f} s of it"
    return warn(
        "overlap",
        holds=not beside,
        found=told,
        advice="cells on one node slow each other down 1.5 to 3 times; send them again with "
        "cluster.isolate=serial (rerun=true)",
    )


def _together(me: Peer, other: Peer) -> timedelta:
    """How long two attempts ran at the same time; none where it is not known."""
    if not (me.begun and me.ended and other.begun and other.ended):
        return timedelta(0)
    return min(me.ended, other.ended) - max(me.begun, other.begun)


def shared_devices(me: Peer, found: Meanwhile) -> CheckResult | None:
    """No other cell of the study used the cell's GPUs at the same time."""
    if not (me.uuids and me.begun and me.ended):
        return None
    beside = found.on_devices.get(me.slug)
    told = f"no other cell of the study used its {len(me.uuids)} GPUs meanwhile"
    if beside:
        told = f"{names(other.slug for other in beside)} used the same GPUs at the same time"
    return warn(
        "shared-devices",
        holds=not beside,
        found=told,
        advice="two cells shared a GPU, neither time is its own; send both again (rerun=true)",
    )
