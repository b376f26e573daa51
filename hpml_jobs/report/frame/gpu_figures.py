"""The state of a cell's GPUs in the timed epoch, in one value for each quantity."""

from statistics import mean, median
from typing import NamedTuple

from hpml_jobs.core.gpus import link_text
from hpml_jobs.core.precision import precision_of
from hpml_jobs.core.record import Record


class GpuFigures(NamedTuple):
    """The GPUs of a cell; None is what is not known.

    Clocks are the median of the GPUs, `least_sm_clock_mhz` the least reading of any; `power_w` is
    the mean of a GPU. `bus_ids` has nvidia-smi's index and bus id of each, by rank.
    """

    precision: str | None = None
    sm_clock_mhz: float | None = None
    least_sm_clock_mhz: int | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle_reasons: str | None = None
    gpu_samples: int | None = None
    bus_ids: str | None = None
    links: str | None = None
    link_gb_per_s: float | None = None


def gpu_figures(record: Record) -> GpuFigures:
    """Return the figures of a cell; of one on the CPU only its number format."""
    if record.facts is None:
        return GpuFigures()
    cards = [card for rank in record.ranks for card in rank.cards]
    samples = [card.samples for card in cards if card.samples]
    clocks = [card.clock_mhz for card in cards if card.clock_mhz is not None]
    least = [sample.sm_clock_mhz[0] for sample in samples] or clocks
    memory = [card.memory_clock_mhz for card in cards if card.memory_clock_mhz is not None]
    watts = [s.power_w[1] for s in samples] or [c.power_w for c in cards if c.power_w is not None]
    heat = [s.temperature_c for s in samples] or [
        card.temperature_c for card in cards if card.temperature_c is not None
    ]
    reasons = sorted({reason for card in cards for reason in card.reasons})
    is_known = any(card.samples or card.throttle_reasons is not None for card in cards)
    return GpuFigures(
        precision=None if record.imported else precision_of(record),
        sm_clock_mhz=median(clocks) if clocks else None,
        least_sm_clock_mhz=min(least, default=None),
        memory_clock_mhz=median(memory) if memory else None,
        power_w=mean(watts) if watts else None,
        temperature_c=max(heat, default=None),
        throttle_reasons=(" ".join(reasons) or "none") if is_known else None,
        gpu_samples=min((sample.count for sample in samples), default=None),
        bus_ids=", ".join(f"{c.index} {c.bus_id}" for c in cards if c.bus_id) or None,
        links="; ".join(dict.fromkeys(filter(None, map(link_text, cards)))) or None,
        link_gb_per_s=record.link_gb_per_s,
    )
