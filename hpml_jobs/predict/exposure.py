"""How much of an exchange is exposed: what backward hides, taken from the measured overlap."""

from collections.abc import Sequence
from typing import NamedTuple

from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.predict.network import Priced
from hpml_jobs.predict.values import Observation, SentMessages


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

    def scaled(self, ratio: float) -> "Hiding":
        """Return the same where backward takes `ratio` times as long."""
        return Hiding(self.share, self.most_s * ratio)


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
