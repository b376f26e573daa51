"""Data-quality checks of a cell's GPUs: lowered clocks, other users, health, links and places."""

from hpml_jobs.checks.limits import POWER_CLOCK_LIMIT
from hpml_jobs.checks.peer_table import PeerTable
from hpml_jobs.checks.peers import Peer
from hpml_jobs.checks.result import Affected, Level, Observation, Tier, check, names
from hpml_jobs.core.gpus import HARMLESS, POWER_CAP, lane_fault, memory_fault, slowing_reasons
from hpml_jobs.core.measurements import Card
from hpml_jobs.core.record import Rank, Record
from hpml_jobs.core.text import counted, percent_text, whole_number

GIVEN_GPUS = "SLURM_GPUS_ON_NODE"
"""The number of GPUs that SLURM gave the cell on its node."""


def _cards(record: Record) -> list[Card]:
    return [card for rank in record.ranks for card in rank.cards]


@check(
    "throttled",
    Level.WARN,
    meaning="The driver lowered the clocks of a GPU (heat, a slowdown by the board): this is not "
    "the GPU's own speed. A power limit is the check `power-cap`.",
    limit="no reason for lower clocks in the timed epoch but "
    f"{', '.join(sorted(HARMLESS | {POWER_CAP}))}",
    remedy="compare with equally throttled cells only, or use another node",
    tier=Tier.TABLE,
    affects={Affected.TIME, Affected.SPLIT},
)
def throttled(record: Record) -> Observation | None:
    """Warn if a GPU was throttled in the timed epoch."""
    cards = [card for card in _cards(record) if card.samples or card.throttle_reasons is not None]
    if not cards:
        return None
    with_reasons = [(card, slowing_reasons(card)) for card in cards]
    slowed = [(card, reasons) for card, reasons in with_reasons if reasons]
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


@check(
    "other-processes",
    Level.WARN,
    meaning="Other programs used the cell's GPUs: the times are not the cell's alone. Not judged "
    "where the driver does not list the cell's own processes (a container with its own PIDs).",
    limit="no process of others on the GPUs",
    remedy="request whole GPUs, or resubmit the cell (rerun=true)",
    tier=Tier.NUMBER,
    affects={Affected.TIME, Affected.SPLIT, Affected.BANDWIDTH},
)
def shared_gpus(record: Record) -> Observation | None:
    """Warn if other processes were on the cell's GPUs."""
    others = [card.other_processes for card in _cards(record) if card.other_processes is not None]
    if not others:
        return None
    processes = counted(sum(others), "process", "processes")
    return Observation(sum(others) == 0, f"{processes} of others on the cell's GPUs")


@check(
    "visible-gpus",
    Level.WARN,
    meaning="The cell saw more GPUs than SLURM gave it: nothing kept it, or another job, from "
    "using the GPUs of others.",
    limit=f"as many visible GPUs as {GIVEN_GPUS}",
    remedy="ask the cluster's support for ConstrainDevices=yes in cgroup.conf",
    tier=Tier.LIST,
    affects={Affected.TIME, Affected.SPLIT, Affected.BANDWIDTH},
)
def more_gpus_visible(record: Record) -> Observation | None:
    """Warn if more GPUs were visible than SLURM gave."""
    facts = record.facts
    given = whole_number(facts.slurm.get(GIVEN_GPUS, "")) if facts else None
    if facts is None or not facts.gpus_visible or given is None:
        return None
    visible = counted(facts.gpus_visible, "GPU")
    return Observation(facts.gpus_visible <= given, f"{visible} visible, {given} given")


@check(
    "gpu-health",
    Level.WARN,
    meaning="A GPU had memory errors that it could not correct, or rows of its memory wait to be "
    "replaced: it may fail, or compute wrong results.",
    limit="no uncorrected ECC error since the driver was loaded, no pending or failed remapping",
    remedy="report the node to the cluster's support, and measure again on another one",
    tier=Tier.TABLE,
)
def unhealthy(record: Record) -> Observation | None:
    """Warn if a GPU has uncorrected ECC errors, or rows that are not remapped yet."""
    cards = [card for card in _cards(record) if card.ecc_uncorrected is not None]
    if not cards:
        return None
    for card in cards:
        if fault := memory_fault(card):
            return Observation(False, f"{fault} on {_place(card)}")
    return Observation(True, f"no uncorrected ECC error on {counted(len(cards), 'GPU')}")


def _place(card: Card) -> str:
    return f"GPU {card.bus_id or card.uuid}"


@check(
    "pcie-width",
    Level.WARN,
    meaning="A GPU uses fewer PCIe lanes than it and its slot have: copies to it are slower than "
    "on other nodes, and so is communication where there is no NVLink.",
    limit="the highest possible width",
    remedy="report the node to the cluster's support, and measure again on another one",
    tier=Tier.TABLE,
    affects={Affected.TIME, Affected.SPLIT, Affected.BANDWIDTH},
)
def few_lanes(record: Record) -> Observation | None:
    """Warn if a PCIe link is narrower than it could be."""
    cards = [card for card in _cards(record) if card.pcie_width and card.max_pcie_width]
    if not cards:
        return None
    narrow = next((card for card in cards if lane_fault(card)), None)
    if narrow is None:
        return Observation(True, f"x{cards[0].pcie_width} on {counted(len(cards), 'GPU')}")
    return Observation(False, f"{lane_fault(narrow)} on {_place(narrow)}")


@check(
    "gpu-cpus",
    Level.WARN,
    meaning="A process has no CPU of its GPU's NUMA node: its copies and launches cross the "
    "connection between the sockets.",
    limit="a CPU near the GPU for each process",
    remedy="let SLURM give near CPUs: +cluster.sbatch.gres-flags=enforce-binding",
    tier=Tier.LIST,
    affects={Affected.TIME, Affected.SPLIT},
)
def far_cpus(record: Record) -> Observation | None:
    """Warn if a rank has no CPU near one of its GPUs."""
    ranks = [
        rank for rank in record.ranks if rank.affinity and any(c.near_cpus for c in rank.cards)
    ]
    if not ranks:
        return None
    far = [(rank, card) for rank in ranks if (card := _far_card(rank))]
    if not far:
        return Observation(True, f"{counted(len(ranks), 'rank')} with CPUs near the GPU")
    rank, card = far[0]
    return Observation(
        False,
        f"{len(far)} of {counted(len(ranks), 'rank')} without CPUs near the GPU (rank {rank.rank} "
        f"on {rank.host}, {_place(card)})",
    )


def _far_card(rank: Rank) -> Card | None:
    mine = {*rank.affinity}
    return next((c for c in rank.cards if c.near_cpus and not mine & {*c.near_cpus}), None)


@check(
    "power-cap",
    Level.WARN,
    meaning="A GPU at its power limit was slower than those of the other cells: its limit is "
    "lower, or it is warmer. At the limit alone nothing is wrong, many GPUs are under load.",
    limit=f"{percent_text(POWER_CLOCK_LIMIT)} of the median SM clock of the table's cells",
    remedy="measure again on another node, or compare cells of one node only",
    tier=Tier.TABLE,
    affects={Affected.TIME, Affected.SPLIT},
)
def slow_by_power(peer: Peer, table: PeerTable) -> Observation | None:
    """Warn if a GPU at its power limit has less than 90 % of the table's median clock."""
    cards = [card for card in _cards(peer.record) if card.clock_mhz is not None]
    usual = table.median_clock_mhz
    if not cards or usual is None:
        return None
    clocks = [card.clock_mhz or 0 for card in cards if POWER_CAP in card.reasons]
    if not clocks:
        return Observation(True, f"0 of {counted(len(cards), 'GPU')} at the power limit")
    return Observation(
        min(clocks) >= POWER_CLOCK_LIMIT * usual,
        f"{counted(len(clocks), 'GPU')} at the power limit, at {min(clocks)} MHz or more; the "
        f"median of {names(table.clocked)} is {usual:.0f} MHz",
    )


CHECKS = (throttled, shared_gpus, more_gpus_visible, unhealthy, few_lanes, far_cpus)
"""Of one record, in the order of the report."""
