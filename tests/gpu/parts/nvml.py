"""NVML: what reading the state of a card and its energy counter costs."""

import time
from collections.abc import Callable, Iterator
from statistics import median

import torch

from hpml_jobs.worker.instruments import facts
from hpml_jobs.worker.instruments.cards import CardReader, EnergyMeter
from tests.gpu.bench import Bench
from tests.gpu.figures import Figure


def measure(bench: Bench) -> Iterator[Figure]:
    """Read the state of the card and its energy several times."""
    torch.zeros(1, device=bench.torch_device)
    uuids = facts.device_uuids((bench.torch_device,))
    begin = time.perf_counter()
    reader = CardReader(uuids)
    yield Figure(key="open_ms", value=1e3 * (time.perf_counter() - begin))
    times_ms = [1e3 * _seconds(reader.read) for _ in range(6)]
    yield Figure(key="card_first_ms", value=times_ms[0])
    yield Figure(key="card_again_ms", value=median(times_ms[1:]))
    yield Figure(key="cards", value=float(len(reader.state)), note=_state(reader))
    yield Figure(
        key="missing", value=float(len(reader.missing)), note="; ".join(reader.missing)
    )
    meter = EnergyMeter(uuids)
    if meter.missing:
        yield Figure(key="energy_us", value=None, note=meter.missing[0])
        return
    readings = [_seconds(meter.read) for _ in range(20)]
    yield Figure(key="energy_us", value=1e6 * median(readings))


def _seconds(read: Callable[[], object]) -> float:
    begin = time.perf_counter()
    read()
    return time.perf_counter() - begin


def _state(reader: CardReader) -> str:
    if not reader.state:
        return ""
    card = reader.state[0]
    reasons = ", ".join(card.throttle_reasons or ()) or "no reason for a lower clock"
    return f"{card.sm_clock_mhz} of {card.max_sm_clock_mhz} MHz, {reasons}"
