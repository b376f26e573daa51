"""Checks of a cell's hardware: a CPU for each process; clocks, other users, health of GPUs."""

from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from hpml_jobs.core.check_result import TIMES, Affected, Level, Tier
from hpml_jobs.core.formulas import launch_share
from hpml_jobs.core.gpus import (
    HARMLESS,
    POWER_CAP,
    Card,
    lane_fault,
    memory_fault,
    slowing_reasons,
)
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import Share, counted, percent_text, whole_number
from hpml_jobs.core.value import known
from hpml_jobs.results.checks.result import Observation, check
from hpml_jobs.results.disturbance import ALLOCATED_CPUS


class HostProcesses(NamedTuple):
    """A host's CPUs and the cell's processes there."""

    host: str
    cpus: int
    processes: int


def _busiest_host(record: Record) -> HostProcesses | None:
    """Return the host with the fewest CPUs per process; None where a rank's CPUs are unknown."""
    allowed: dict[str, set[int]] = defaultdict(set)
    processes: dict[str, int] = defaultdict(int)
    for rank in record.ranks:
        if not rank.affinity:
            return None
        allowed[rank.host] |= {*rank.affinity}
        processes[rank.host] += 1
    slurm = record.facts.slurm if record.facts else {}
    most = whole_number(slurm.get(ALLOCATED_CPUS, ""))
    hosts = [
        HostProcesses(host, min(len(cpus), most or len(cpus)), processes[host])
        for host, cpus in allowed.items()
    ]
    return min(
        hosts, key=lambda host: (host.cpus / host.processes, host.host), default=None
    )


OVERSUBSCRIBED = "oversubscribed"


@check(OVERSUBSCRIBED, Level.WARN, Tier.NUMBER, *TIMES)
def oversubscribed(record: Record) -> Observation | None:
    """Processes take turns on too few CPUs: times and speedups at this number of processes measure
    the operating system's scheduler.

    Limit: a CPU for each process of a host
    Fix: use as many processes as CPUs at most (gpus=), or more CPUs
    """
    busiest = _busiest_host(record)
    if busiest is None:
        return None
    host, cpus, processes = busiest
    text = f"{counted(processes, 'process')} on {counted(cpus, 'CPU')} of {host}"
    if cpus >= processes:
        return Observation(True, text)
    return Observation(False, f"{text}, so speedups here measure the scheduler")


NO_FAULT = ", ".join(sorted(HARMLESS | {POWER_CAP}))
"""Reasons for lower clocks that the check `throttled` allows."""

LAUNCH_LIMIT = Share(0.9)


@check("throttled", Level.WARN, Tier.TABLE, Affected.TIME, Affected.SPLIT)
def throttled(record: Record) -> Observation | None:
    """The driver lowered the clocks of a GPU (heat, a slowdown by the board): this is not the GPU's
    own speed.

    Limit: no reason for lower clocks in the timed epoch but {NO_FAULT}
    Fix: compare with equally throttled cells only, or use another node
    """
    cards = [
        card
        for card in record.cards
        if card.samples or card.throttle_reasons is not None
    ]
    if not cards:
        return None
    slowed = [(card, reasons) for card in cards if (reasons := slowing_reasons(card))]
    if not slowed:
        return Observation(True, f"0 of {counted(len(cards), 'GPU')} throttled")
    card, reasons = slowed[0]
    return Observation(
        False,
        f"{len(slowed)} of {counted(len(cards), 'GPU')} throttled by {', '.join(reasons)} "
        f"({_clock_text(card)})",
    )


def _clock_text(card: Card) -> str:
    temperature = card.samples.temperature_c if card.samples else card.temperature_c
    return f"{card.clock_mhz} of {card.max_sm_clock_mhz} MHz, {temperature} °C"


@check("other-processes", Level.WARN, Tier.NUMBER, *TIMES)
def shared_gpus(record: Record) -> Observation | None:
    """Other programs used the cell's GPUs: the times are not the cell's alone. Not judged where the
    driver does not list the cell's own processes (a container with its own PIDs).

    Limit: no process of others on the GPUs
    Fix: request whole GPUs, or resubmit the cell (rerun=true)
    """
    others = known(card.other_processes for card in record.cards)
    if not others:
        return None
    processes = counted(sum(others), "process")
    return Observation(sum(others) == 0, f"{processes} of others on the cell's GPUs")


@check("gpu-health", Level.WARN, Tier.TABLE)
def unhealthy(record: Record) -> list[Observation | None]:
    """A GPU had memory errors that it could not correct, or rows of its memory wait to be replaced:
    it may fail, or compute wrong results. Or it uses fewer PCIe lanes than it and its slot have:
    copies to it are slower than on other nodes, and so is communication where there is no NVLink
    (Tables 1 to 3).

    Limit: no uncorrected ECC error, no pending or failed remapping, all possible PCIe lanes
    Fix: report the node to the cluster's support, and measure again on another one
    """
    return [_memory(record.cards), _lanes(record.cards)]


def _memory(all_cards: Sequence[Card]) -> Observation | None:
    for card in all_cards:
        if fault := memory_fault(card):
            return Observation(False, f"{fault} on {_place(card)}")
    cards = [card for card in all_cards if card.ecc_uncorrected is not None]
    if not cards:
        return None
    return Observation(
        True, f"no uncorrected ECC error on {counted(len(cards), 'GPU')}"
    )


def _place(card: Card) -> str:
    return f"GPU {card.bus_id or card.uuid}"


def _lanes(all_cards: Sequence[Card]) -> Observation | None:
    cards = [card for card in all_cards if card.pcie_width and card.max_pcie_width]
    if not cards:
        return None
    narrow = next((card for card in cards if lane_fault(card)), None)
    if narrow is None:
        return Observation(
            True, f"x{cards[0].pcie_width} on {counted(len(cards), 'GPU')}"
        )
    text = f"{lane_fault(narrow)} on {_place(narrow)}"
    return Observation(False, text, affects=frozenset(TIMES))


@check("gpu-utilization", Level.WARN, Tier.TABLE, Affected.TIME)
def little_used(record: Record) -> list[Observation | None]:
    """The timed epoch was not limited by the GPUs' speed. They ran kernels for a smaller share of
    the time than the site wants, which may cancel such jobs: judged where
    cluster.cancel_below_utilization has the cell's host. Or they wait for the host, which launches
    their kernels: the epoch measures Python and the CPU, and a faster GPU would not be faster. Or a
    GPU was full, and torch's allocator had to free cached memory: each time the GPU waits, and this
    is shown beside the number. Only with device=cuda.

    Limit: cluster.cancel_below_utilization; a host that launches for {LAUNCH_LIMIT} of the
    epoch
    Fix: use a larger batch= or fewer gpus=; where the host launches, compile=true
    """
    if record.cell.device is Device.CPU:
        return []
    return [_utilization(record), _launch_time(record), _allocations(record)]


def _utilization(record: Record) -> Observation | None:
    used = record.gpu_utilization_percent
    limit = record.facts.cancel_below_percent if record.facts else None
    if used is None or limit is None:
        return None
    return Observation(
        used >= limit,
        f"GPU utilization is {used:.0f} % (this site cancels jobs below {limit} %)",
        "use a larger batch= or fewer gpus=",
    )


def _launch_time(record: Record) -> Observation | None:
    launches = [
        (launch_share(launch_s, epoch.iterations, epoch.epoch_s), launch_s, rank)
        for rank, epoch in [(rank, rank.timed) for rank in record.ranks]
        if (launch_s := epoch.launch_s) is not None
    ]
    if not launches:
        return None
    share, launch_s, rank = max(launches, key=itemgetter(0))
    return Observation(
        share <= LAUNCH_LIMIT,
        f"the host takes {1e3 * launch_s:.3g} ms to launch an iteration on rank "
        f"{rank.rank}, {percent_text(share)} of the epoch in all (limit {LAUNCH_LIMIT})",
        "use a larger batch=, or compile the model (compile=true)",
    )


def _allocations(record: Record) -> Observation | None:
    memories = [rank.timed.memory for rank in record.ranks if rank.timed.memory]
    if not memories:
        return None
    retries = sum(memory.retries for memory in memories)
    reserved = max(memory.reserved_bytes for memory in memories)
    return Observation(
        retries == 0,
        f"{counted(retries, 'allocation')} freed cached memory first, at {reserved / 1e9:.3g} GB",
        "use a smaller batch=",
        tier=Tier.NUMBER,
    )
