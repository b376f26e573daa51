"""How much of an exchange is exposed: what backward hides, taken from the measured overlap."""

from collections.abc import Sequence
from typing import NamedTuple

from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.predict.network import Network, Priced, UnknownPriceError
from hpml_jobs.predict.place import Observation, SentMessages, Size


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
