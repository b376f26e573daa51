"""Facts of links against each other: what is not used, and what contradicts a sweep."""

from hpml_jobs.core.formulas import bus_gb_per_s
from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.errors import UsageError
from hpml_jobs.predict.network import BusSweep, Link, Network

TOLERANCE, MOST_ABOVE = 1.1, 4.0
"""A sweep may exceed the speed of its links by 10 %, and reach a quarter of it."""


def check_links(network: Network) -> list[str]:
    """Return notes on facts of the links that are not used.

    Raises:
        UsageError: the speed of the links contradicts a sweep across nodes, or a sweep inside a
            node is to describe another network.
    """
    link, given = network.link, network.given
    if link is not None and given is not None and given.crosses_nodes:
        _check_speed(link, max(given.gb_per_s.values()), f"sweep={given.name}")
    notes = _of_one_node(network, given) if given and not given.crosses_nodes else []
    if network.is_other or not network.crosses_nodes:
        return notes
    peak = _measured_peak(network)
    if link is not None and peak is not None:
        _check_speed(link, peak, "the microbenchmark across nodes")
        notes.append(
            f"link_gb_per_s={link.gb_per_s:g} is not used: messages were measured across nodes "
            f"(up to {peak:.3g} GB/s); other_network=true predicts for another network"
        )
    if given is not None and given.crosses_nodes:
        notes.append(
            f"sweep={given.name} is not used: messages were measured across nodes; "
            "other_network=true predicts for another network"
        )
    return notes


def _of_one_node(network: Network, given: BusSweep) -> list[str]:
    """Return a note where a sweep inside a node is not used; refuse it as another network."""
    if network.is_other and network.link is None:
        raise UsageError(
            f"other_network=true: sweep={given.name} is of one node; "
            "give one across nodes, or link_gb_per_s="
        )
    if not any(place.nodes == 1 for place, _ in network.sweeps):
        return []
    return [f"sweep={given.name} is not used for collectives that the study measured inside a node"]


def _check_speed(link: Link, peak_gb_per_s: float, of: str) -> None:
    """Refuse links that are slower than what passed through them, or many times faster."""
    speed, peak = link.node_gb_per_s, peak_gb_per_s
    if speed * TOLERANCE < peak or speed > MOST_ABOVE * peak:
        each = f" x links_per_node={link.per_node}" if link.per_node > 1 else ""
        verb = "less than" if speed < peak else f"more than {MOST_ABOVE:g} times"
        raise UsageError(
            f"link_gb_per_s={link.gb_per_s:g}{each} is {verb} what {of} reached ({peak:.3g} GB/s): "
            "correct one of them, or add other_network=true for a network that was not measured"
        )


def _measured_peak(network: Network) -> float | None:
    """Return the highest bus bandwidth of an all-reduce across nodes; None without one."""
    speeds = [
        bus_gb_per_s(size, time_s, place.gpus, kind)
        for (place, kind), times_s in network.sweeps.items()
        if place.crosses_nodes and kind is CollectiveKind.ALL_REDUCE
        for size, time_s in times_s.items()
    ]
    return max(speeds, default=None)
