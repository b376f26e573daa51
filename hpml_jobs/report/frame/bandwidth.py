"""Bandwidths of one place, from the medians of its measured values (GB = 1e9 bytes)."""

from typing import Any

from hpml_jobs.core import formulas
from hpml_jobs.core.strategies import BandwidthKind, Strategy
from hpml_jobs.core.value import Value
from hpml_jobs.report.frame.figures import Figures


class Bandwidth(Value, frozen=True, kw_only=True):
    """GB/s of the gradients alone, without buffers and their time; None if unknown.

    `algorithm`, `bus`: by the time of the rank with the least, since on an early rank the time
    contains waiting for the late one; `bus_plain`: by that of the rank that waits least.
    `nominal`: what a ring all-reduce of the gradients would have reached in dp's time.
    `root_wire`: what passed through rank 0's link under gather_scatter, by rank 0's time.
    `delayed`: share of the microbenchmark's trials that waited for the scheduler.
    """

    sent_bytes: float
    expected_bytes: int | None = None
    algorithm_gb_per_s: float | None = None
    bus_gb_per_s: float | None = None
    bus_plain_gb_per_s: float | None = None
    nominal_gb_per_s: float | None = None
    root_wire_gb_per_s: float | None = None
    of_peak: float | None = None
    of_same_sizes: float | None = None
    of_link: float | None = None
    delayed: float | None = None

    @property
    def lab_gb_per_s(self) -> float | None:
        """The value in Table 3: the bus bandwidth, else the nominal, else root's link."""
        values = (self.bus_gb_per_s, self.nominal_gb_per_s, self.root_wire_gb_per_s)
        return next((value for value in values if value is not None), None)


def bandwidth(
    values: Figures,
    strategy: Strategy,
    gpus: int,
    iterations: int | None,
    gradient_bytes: int | None,
) -> Bandwidth | None:
    """Return the bandwidths of one place; None if no gradient was seen on the wire."""
    sent, net_s = values.gradients_sent_bytes, values.gradients_net_s
    if not sent or not net_s or gpus == 1 or iterations is None:
        return None
    fields: dict[str, Any] = {
        "sent_bytes": sent,
        "expected_bytes": _expected(strategy, iterations, gradient_bytes),
        "algorithm_gb_per_s": formulas.algorithm_gb_per_s(sent, net_s),
        "delayed": values.delayed,
    }
    match strategy.traffic.bandwidth:
        case BandwidthKind.NOMINAL:
            fields |= _nominal(net_s, gpus, iterations, gradient_bytes)
        case BandwidthKind.ROOT_WIRE:
            fields |= _by_root(values, sent, gpus)
        case BandwidthKind.BUS | BandwidthKind.SHARDED as kind:
            fields |= _by_bus(values, kind.wire_bytes(sent, gpus), net_s)
    return Bandwidth(**fields)


def _expected(strategy: Strategy, iterations: int, gradient_bytes: int | None) -> int | None:
    """Return the bytes of gradients that a rank must send; None where they are not known."""
    passes = strategy.traffic.passes
    if gradient_bytes is None or passes is None:
        return None
    return formulas.expected_bytes(iterations, gradient_bytes, passes)


def _nominal(
    net_s: float, gpus: int, iterations: int, gradient_bytes: int | None
) -> dict[str, float]:
    if gradient_bytes is None:
        return {}
    once = formulas.expected_bytes(iterations, gradient_bytes)
    return {"nominal_gb_per_s": formulas.bus_gb_per_s(once, net_s, gpus)}


def _by_root(values: Figures, sent: float, gpus: int) -> dict[str, float | None]:
    """Return the bandwidths by rank 0's time: the link of root carries S out and S back per rank.

    Root's own time: another rank is done as soon as its part is sent.
    """
    root_s = values.gradients_root_s
    if not root_s:
        return {}
    return {
        "algorithm_gb_per_s": formulas.algorithm_gb_per_s(sent, root_s),
        "root_wire_gb_per_s": formulas.algorithm_gb_per_s((gpus - 1) * sent, root_s),
    }


def _by_bus(values: Figures, wire_bytes: float, net_s: float) -> dict[str, float | None]:
    bus = formulas.algorithm_gb_per_s(wire_bytes, net_s)
    plain_s, alone_s = values.gradients_s, values.probe_same_sizes_s
    return {
        "bus_gb_per_s": bus,
        "bus_plain_gb_per_s": (
            formulas.algorithm_gb_per_s(wire_bytes, plain_s) if plain_s else None
        ),
        "of_peak": bus / values.peak_gb_per_s if values.peak_gb_per_s else None,
        "of_same_sizes": alone_s / net_s if alone_s else None,
        "of_link": bus / values.link_gb_per_s if values.link_gb_per_s else None,
    }
