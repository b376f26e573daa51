"""Seconds of messages on idle GPUs and nodes that were not measured, and what of them is exposed.

A collective's time is interpolated in its measured sweep, straight in the logarithms of bytes and
seconds. The sweep of one size stands for another size of the same kind (one node, or several) by
the bus factors of nccl-tests; its startup, the time of its fastest message, grows with log2 of the
processes, as in a tree. What backward hides of an exchange is taken from the measured overlap.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from hpml_jobs.core.formulas import bus_factor
from hpml_jobs.core.measurements import SWEPT, CollectiveKind
from hpml_jobs.predict.place import Observation, SentMessages, Size

GAP = 10
"""Neighbouring sizes of a sweep that differ by more than this factor are a gap."""

STARTUP_BYTES = 64 * 1024
"""Up to this many bytes a message takes hardly longer than its startup."""


Sweeps: TypeAlias = Mapping[tuple[Size, CollectiveKind], Mapping[int, float]]
"""Seconds by message bytes, of each size and collective."""


class BusSweep(NamedTuple):
    """A sweep from elsewhere: bus bandwidth in GB/s by message bytes, inside or across nodes."""

    name: str
    gb_per_s: Mapping[int, float]
    crosses_nodes: bool = True

    def times_s(self, kind: CollectiveKind, gpus: int) -> dict[int, float]:
        """Return the seconds of a collective by message bytes on so many GPUs."""
        factor = bus_factor(kind, gpus)
        return {size: factor * size / (1e9 * speed) for size, speed in self.gb_per_s.items()}


class Priced(NamedTuple):
    """Seconds of an iteration's messages one after another, and of the longest of them.

    `given_s` of the total are across nodes by a sweep from elsewhere; `remarks` say what the figure
    does not rest on.
    """

    total_s: float
    longest_s: float
    given_s: float = 0.0
    remarks: tuple[str, ...] = ()


class UnknownPriceError(Exception):
    """The time of messages at a size cannot be known; the message says what is missing.

    `across_nodes`: a cell on two nodes would make it known.
    """

    def __init__(self, reason: str, *, across_nodes: bool = False) -> None:
        """Keep the reason, and whether nodes are what is missing."""
        super().__init__(reason)
        self.across_nodes = across_nodes


class Network(NamedTuple):
    """The measured sweeps by size and collective, and one from elsewhere.

    The `given` sweep is used inside a node, or across nodes, where a collective was not measured
    there. `as_rings`: beyond the measured nodes startup grows with the processes, as in a ring, and
    bytes as in a ring over nodes.
    """

    sweeps: Sweeps
    given: BusSweep | None = None
    as_rings: bool = False

    @property
    def measured_where_given(self) -> bool:
        """Whether the study measured sweeps where the given one is of: in a node or across."""
        given = self.given
        return given is not None and any(
            size.crosses_nodes == given.crosses_nodes for size, _ in self.sweeps
        )

    def price(self, messages: Sequence[SentMessages], size: Size) -> Priced:
        """Return the seconds of the messages of one iteration.

        Raises:
            UnknownPriceError: there is no sweep of one of their collectives.
        """
        total_s = longest_s = given_s = 0.0
        remarks: dict[str, None] = {}
        for message in messages:
            measured = self._measured(message.kind, size)
            times_s = measured or self._given(message.kind, size)
            seconds = sweep_s(times_s, message.bytes)
            total_s += message.per_iteration * seconds
            if measured is None and size.crosses_nodes:
                given_s += message.per_iteration * seconds
            longest_s = max(longest_s, seconds)
            remarks |= dict.fromkeys(_remarks(times_s, message.bytes))
        return Priced(total_s, longest_s, given_s, tuple(remarks))

    def _given(self, kind: CollectiveKind, size: Size) -> Mapping[int, float]:
        """Return the sweep from elsewhere.

        Raises:
            UnknownPriceError: there is none of the collective, or none inside or across nodes.
        """
        if kind not in SWEPT:
            raise UnknownPriceError(f"the microbenchmark has no {kind.words}")
        if self.given is not None and self.given.crosses_nodes == size.crosses_nodes:
            return self.given.times_s(kind, size.gpus)
        if size.crosses_nodes:
            raise UnknownPriceError(
                f"no {kind.words} was measured across nodes: a cell on two nodes, or sweep=FILE is "
                "needed",
                across_nodes=True,
            )
        raise UnknownPriceError(
            f"no {kind.words} was measured inside a node: protocol=full with probe_s= above 0 "
            "measures it, or give sweep=FILE with a column nodes of 1"
        )

    def _measured(self, kind: CollectiveKind, size: Size) -> Mapping[int, float] | None:
        """Return the sweep of the nearest measured size, scaled to a size; None without one."""
        nearest = [
            (abs(math.log(other.gpus / size.gpus)), -other.gpus, other)
            for other, of_kind in self.sweeps
            if of_kind is kind and other.crosses_nodes == size.crosses_nodes
        ]
        if not nearest:
            return None
        other = min(nearest)[-1]
        if self.as_rings and size.nodes > other.nodes > 1:
            by_startup = (size.gpus - 1) / (other.gpus - 1)
            by_bytes = (1 - 1 / size.nodes) / (1 - 1 / other.nodes)
            return _grown(self.sweeps[other, kind], by_startup, by_bytes)
        return scaled(self.sweeps[other, kind], kind, other.gpus, size.gpus)


def measured_sweeps(observations: Iterable[Observation]) -> Sweeps:
    """Return the sweeps by size and collective: of several cells the one with the most sizes.

    One GPU alone sends nothing: its sweep is of no network.
    """
    sweeps: dict[tuple[Size, CollectiveKind], Mapping[int, float]] = {}
    for observation in observations:
        for sweep in observation.sweeps if observation.gpus > 1 else ():
            key = (observation.size, sweep.kind)
            times_s = {size: time_s for size, time_s in sweep.times_s.items() if time_s > 0}
            if times_s and len(times_s) > len(sweeps.get(key, ())):
                sweeps[key] = times_s
    return sweeps


def scaled(
    times_s: Mapping[int, float], kind: CollectiveKind, gpus: int, to_gpus: int
) -> Mapping[int, float]:
    """Return a sweep on `gpus` processes as one on `to_gpus`: startup by log2, the rest by bytes.

    >>> sweep = {1_000: 1e-5, 1_000_000: 2e-5}
    >>> {n: round(s, 9) for n, s in scaled(sweep, CollectiveKind.ALL_REDUCE, 2, 4).items()}
    {1000: 2e-05, 1000000: 3.5e-05}
    """
    if gpus == to_gpus:
        return times_s
    by_startup = math.log2(to_gpus) / math.log2(gpus)
    return _grown(times_s, by_startup, bus_factor(kind, to_gpus) / bus_factor(kind, gpus))


def _grown(times_s: Mapping[int, float], by_startup: float, by_bytes: float) -> Mapping[int, float]:
    """Return a sweep whose startup, the time of its fastest message, and rest take longer."""
    startup_s = min(times_s.values())
    return {
        size: by_startup * startup_s + by_bytes * (time_s - startup_s)
        for size, time_s in times_s.items()
    }


def sweep_s(times_s: Mapping[int, float], message_bytes: int) -> float:
    """Return the time of a message: interpolated in logarithms between two measured sizes.

    Below the smallest size it is that of the smallest. Above the largest it grows with the bytes:
    no bandwidth is assumed that was not reached.

    >>> sweep = {1_000: 1e-5, 4_000: 2e-5, 16_000: 4e-5}
    >>> [round(1e6 * sweep_s(sweep, n), 6) for n in (500, 4_000, 8_000, 32_000)]
    [10.0, 20.0, 28.284271, 80.0]
    """
    sizes = sorted(times_s)
    if message_bytes <= sizes[0]:
        return times_s[sizes[0]]
    if message_bytes >= sizes[-1]:
        return times_s[sizes[-1]] * message_bytes / sizes[-1]
    index = bisect_left(sizes, message_bytes)
    low, high = sizes[index - 1], sizes[index]
    share = math.log(message_bytes / low) / math.log(high / low)
    return float(times_s[low] * (times_s[high] / times_s[low]) ** share)


def _remarks(times_s: Mapping[int, float], message_bytes: int) -> Iterable[str]:
    sizes = sorted(times_s)
    if message_bytes > sizes[-1]:
        yield (
            f"the sweep ends at {sizes[-1]:,} bytes: messages of {message_bytes:,} are taken at "
            "its last bandwidth"
        )
    elif message_bytes < sizes[0] and sizes[0] > STARTUP_BYTES:
        yield (
            f"the sweep begins at {sizes[0]:,} bytes: messages of {message_bytes:,} are taken to "
            "last as long as these"
        )
    elif message_bytes > sizes[0]:
        index = bisect_left(sizes, message_bytes)
        if sizes[index] != message_bytes and sizes[index] > GAP * sizes[index - 1]:
            yield (
                f"the sweep has nothing between {sizes[index - 1]:,} and {sizes[index]:,} bytes: "
                f"messages of {message_bytes:,} are interpolated over this gap"
            )


class Exposed(NamedTuple):
    """Exposed communication of an iteration, and what its figure does not rest on.

    `as_rings_s` is of messages that grow as in rings over nodes, `given_slower_s` where messages by
    a sweep from elsewhere take twice as long.
    """

    seconds: float
    as_rings_s: float
    given_slower_s: float
    remarks: tuple[str, ...]


def exposed(network: Network, cell: Observation, size: Size, backward: float) -> Exposed:
    """Return the exposed communication of a cell's messages at a size.

    Its backward takes `backward` times as long there.

    Raises:
        UnknownPriceError: the cell has no messages, or they have no price there.
    """
    if not cell.messages:
        raise UnknownPriceError(
            f"no cell of strategy={cell.strategy.value} on several GPUs has its messages "
            "(protocol=full records them)"
        )
    measured = network.price(cell.messages, cell.size)
    messages = messages_at(cell, size.gpus)
    price = network.price(messages, size)
    as_rings = network._replace(as_rings=True).price(messages, size)
    hiding = hiding_of(cell, measured)
    hiding = hiding._replace(most_s=hiding.most_s * backward)
    return Exposed(
        seconds=hiding.exposed_s(price.total_s),
        as_rings_s=hiding.exposed_s(as_rings.total_s),
        given_slower_s=hiding.exposed_s(price.total_s + price.given_s),
        remarks=price.remarks,
    )


class Hiding(NamedTuple):
    """What an iteration hides of its exchange: at most 1 - `share` of it, at most `most_s`.

    `share` was exposed where it was measured. A faster exchange has the same share exposed (the
    last bucket waits for nothing but itself); of a slower one no more is hidden than backward has
    time for.
    """

    share: float
    most_s: float

    def exposed_s(self, exchange_s: float) -> float:
        """Return the exposed seconds of an exchange that takes so long on idle devices.

        >>> hiding = Hiding(share=0.25, most_s=0.06)
        >>> [round(hiding.exposed_s(seconds), 9) for seconds in (0.04, 0.08, 0.2)]
        [0.01, 0.02, 0.14]
        """
        return max(self.share * exchange_s, exchange_s - self.most_s)


def hiding_of(observation: Observation, price: Priced) -> Hiding:
    """Return what a measured iteration hides, by the price of its messages on idle devices.

    What is exposed beyond the longest message shows that backward hides all it can. Otherwise the
    first of K messages is ready after 1/K of backward, and the rest of it can hide others.
    Where it is not known what was exposed, everything is.
    """
    exchange_s, exposed_s = price.total_s, observation.exposed_s
    if exchange_s <= 0 or exposed_s is None:
        return Hiding(1.0, 0.0)
    hidden_s = max(0.0, exchange_s - exposed_s)
    share = min(1.0, exposed_s / exchange_s)
    overlaps = observation.strategy.traffic.overlaps_backward
    if not overlaps or exposed_s > price.longest_s:
        return Hiding(share, hidden_s)
    return Hiding(share, max(hidden_s, _window_s(observation)))


def unmeasured_hiding(observation: Observation, price: Priced) -> Hiding:
    """Return the same without what was exposed: backward hides all but the longest message.

    It hides no more than it has time for.
    """
    if not observation.strategy.traffic.overlaps_backward or price.total_s <= 0:
        return Hiding(1.0, 0.0)
    return Hiding(price.longest_s / price.total_s, _window_s(observation))


def _window_s(observation: Observation) -> float:
    """Return the part of backward that can hide messages: after the first of K, 1 - 1/K of it."""
    number = sum(message.per_iteration for message in observation.messages)
    if observation.backward_s is None or number <= 1:
        return 0.0
    return (1 - 1 / number) * observation.backward_s


def messages_at(observation: Observation, gpus: int) -> Sequence[SentMessages]:
    """Return the messages of an iteration on another number of GPUs.

    They are the same, but for broadcasts: each rank sends its part of the parameters (zero1).
    """
    ratio = gpus / observation.gpus
    return [
        SentMessages(
            kind=message.kind,
            bytes=round(message.bytes / ratio),
            per_iteration=message.per_iteration * ratio,
        )
        if message.kind is CollectiveKind.BROADCAST
        else message
        for message in observation.messages
    ]
