"""NVML, the library of NVIDIA's driver: its numbers about a GPU, and what they mean."""

import re
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any

from hpml_jobs.core.text import counted
from hpml_jobs.core.value import Value

THROTTLE_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Bits of nvmlClocksThrottleReasons (NVML API reference)."""

POWER_CAP = "sw_power_cap"
"""The reason under which a GPU stays below its power limit: normal under load."""

HARMLESS = frozenset(
    {"gpu_idle", "applications_clocks_setting", "display_clock_setting"}
)
"""NVML's reasons for lower clocks that did not slow the work: no work, or clocks set by hand."""

SWITCH = "switch"
"""The end of an NVLink that leads to an NVSwitch, through which every GPU is reached."""

NVLINK_GB_PER_S = {1: 20.0, 2: 25.0, 3: 25.0, 4: 25.0, 5: 25.0, 6: 25.0, 7: 50.0}
"""Specified one-way speed of one link by NVML's number of the version: 1.0 is 1, 2.0 and 2.2 are
2 and 3, 3.0 and 3.1 are 4 and 5, 4.0 is 6, 5.0 is 7 (NVIDIA P100, V100, A100, H100 and Blackwell
architecture papers: 160, 300, 600, 900 and 1,800 GB/s of 4, 6, 12, 18 and 18 links, both ways)."""

PCIE_LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""Specified one-way speed of a lane by the generation, after line coding (PCI-SIG)."""

_NODE_FAULT = re.compile(
    r"uncorrectable (?:ECC|NVLink) error|over nvlink or a hardware error|GPU is lost"
    r"|fallen off the bus|CUDA-capable device\(s\) is/are busy or unavailable"
    r"|system not yet initialized",
    re.IGNORECASE,
)
"""Errors that are the node's fault, not the cell's: another node may run it (cudaGetErrorString and
nvmlErrorString).

Not `unspecified launch failure`: most often a kernel used an invalid pointer (CUDA's reference).
"""


REASON_SHARE = 0.05
"""The least share of an epoch in which a reason for lower clocks held that counts."""


class CardSamples(Value, frozen=True, kw_only=True):
    """A GPU over the timed epoch, sampled `count` times by the job's wrapper.

    Clocks are the least, the median and the most of the samples, in MHz; power the least, the mean
    and the most, in W. `throttle_reasons` has the share of the samples in which each one held.
    `utilization_percent` is the mean of NVML's GPU utilization; None before 0.9.0, or with MIG.
    """

    count: int
    sm_clock_mhz: tuple[int, int, int]
    memory_clock_mhz: tuple[int, int, int]
    power_w: tuple[float, float, float]
    temperature_c: int
    throttle_reasons: dict[str, float] = {}
    utilization_percent: float | None = None


class Card(Value, frozen=True, kw_only=True):
    """A GPU right after the timed epoch by NVML, and `samples` of it over that epoch.

    Before version 0.8.0 it is the state right after the instrumented epoch. None: the driver does
    not tell, or a version before 0.8.0. `index` and `bus_id` are those of nvidia-smi; `mig`: it is
    an instance of a divided GPU, whose values are those of the whole board. `other_processes` are
    those beside this rank. `power_limit_w` is the enforced limit. `pcie_*` are the link's present
    and highest possible generation and width; `nvlink_to` has the end of each active NVLink, the
    bus id of a GPU or `switch`, `nvlink_version` NVML's number for its version. ECC errors are
    counted since the driver was loaded; `row_remapping` is done, pending or failed. `near_cpus` are
    the CPUs of the GPU's NUMA node.
    """

    uuid: str
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    other_processes: int | None = None
    memory_clock_mhz: int | None = None
    power_limit_w: float | None = None
    index: int | None = None
    bus_id: str | None = None
    mig: bool = False
    pcie_generation: int | None = None
    pcie_width: int | None = None
    max_pcie_generation: int | None = None
    max_pcie_width: int | None = None
    nvlink_to: tuple[str, ...] | None = None
    nvlink_version: int | None = None
    ecc_corrected: int | None = None  # before 1.0
    ecc_uncorrected: int | None = None
    remapped_rows: int | None = None
    row_remapping: str | None = None
    near_cpus: tuple[int, ...] = ()
    samples: CardSamples | None = None

    @property
    def reasons(self) -> frozenset[str]:
        """The reasons for lower clocks in the timed epoch; of records without samples after it.

        Those that held in less than 5 % of the samples are left out.
        """
        if self.samples is None:
            return frozenset(self.throttle_reasons or ())
        shares = self.samples.throttle_reasons
        return frozenset(
            reason for reason, share in shares.items() if share >= REASON_SHARE
        )

    @property
    def clock_mhz(self) -> int | None:
        """The median SM clock in the timed epoch; of records without samples the one after it."""
        return self.samples.sm_clock_mhz[1] if self.samples else self.sm_clock_mhz

    @property
    def utilization_percent(self) -> float | None:
        """The mean utilization in the timed epoch; None without samples."""
        return self.samples.utilization_percent if self.samples else None


def is_mig(gpu_name: str) -> bool:
    """Return whether a device is an instance of a divided GPU (MIG), by CUDA's name of it.

    >>> is_mig("NVIDIA A100-SXM4-40GB MIG 1g.5gb"), is_mig("NVIDIA A100-SXM4-40GB")
    (True, False)
    """
    return " MIG " in gpu_name


def is_mig_type(gpu_type: str) -> bool:
    """Return whether SLURM's name of a GPU type is that of an instance (MIG's profile).

    >>> [is_mig_type(name) for name in ("1g.5gb", "a100_3g.20gb", "a100-80gb")]
    [True, True, False]
    """
    return re.search(r"(?<![a-z0-9])\d+g\.\d+gb", gpu_type.lower()) is not None


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """Return the names of the reasons in NVML's bit mask.

    >>> throttle_reasons(0x24), throttle_reasons(0x401), throttle_reasons(0x1800)
    (('sw_power_cap', 'sw_thermal_slowdown'), ('gpu_idle', 'reliability'), ('reason_0x800', \
'reason_0x1000'))
    """
    single_bits = (1 << place for place in range(bits.bit_length()))
    set_bits = [bit for bit in single_bits if bits & bit]
    return tuple(THROTTLE_REASONS.get(bit, f"reason_{bit:#x}") for bit in set_bits)


def slowing_reasons(card: Card) -> list[str]:
    """Return the reasons for lower clocks that are a fault of the GPU or its node, sorted."""
    return sorted(card.reasons - HARMLESS - {POWER_CAP})


def memory_fault(card: Card) -> str:
    """Return what is wrong with a GPU's memory, in words; empty if nothing, or if not known.

    >>> memory_fault(Card(uuid="GPU-0", ecc_uncorrected=2, row_remapping="pending"))
    '2 uncorrected ECC errors'
    """
    if card.ecc_uncorrected:
        return counted(card.ecc_uncorrected, "uncorrected ECC error")
    if card.row_remapping in ("pending", "failed"):
        return f"row remapping is {card.row_remapping}"
    return ""


def node_fault(text: str) -> str:
    """Return the words of the first such error in a text; empty if there is none.

    >>> node_fault("RuntimeError: CUDA error: uncorrectable ECC error encountered")
    'uncorrectable ECC error'
    >>> node_fault("CUDA error: an illegal memory access was encountered")
    ''
    """
    match = _NODE_FAULT.search(text)
    return match[0] if match else ""


def lane_fault(card: Card) -> str:
    """Return the PCIe lanes of a GPU with fewer than possible; empty otherwise.

    >>> lane_fault(Card(uuid="GPU-0", pcie_width=8, max_pcie_width=16))
    'x8 of x16 lanes'
    """
    width, highest = card.pcie_width, card.max_pcie_width
    return (
        f"x{width} of x{highest} lanes" if width and highest and width < highest else ""
    )


def link_gb_per_s(cards: Sequence[Card]) -> float | None:
    """Return the specified one-way speed between GPUs of one node, in GB/s (1e9 bytes).

    By NVLink if it connects each GPU with each other one, of the GPU with the least; by PCIe, with
    the highest generation and width that GPU and slot have, if no link leads to another of these
    GPUs. None for one GPU, where some are linked and others are not, and where NVML does not say.
    """
    if len(cards) < 2:
        return None
    buses = {_bus(card.bus_id or "") for card in cards}
    links = [link for card in cards if (link := _link_of(card, buses))]
    kinds = {is_nvlink for is_nvlink, _ in links}
    if len(links) < len(cards) or len(kinds) > 1:
        return None
    return min(speed for _, speed in links)


def _link_of(card: Card, buses: Set[str]) -> tuple[bool, float] | None:
    """Return whether NVLink leads to the others, and its speed; None: unknown, or not to all."""
    if card.nvlink_to is None or card.bus_id is None:
        return None
    others = buses - {_bus(card.bus_id)}
    ends = [end for end in map(_bus, card.nvlink_to) if end in (SWITCH, *others)]
    if not ends:
        speed = _pcie_gb_per_s(card)
        return None if speed is None else (False, speed)
    speed = NVLINK_GB_PER_S.get(card.nvlink_version or 0)
    if speed is None or not (SWITCH in ends or others <= {*ends}):
        return None
    return True, len(ends) * speed


def _pcie_gb_per_s(card: Card) -> float | None:
    lane = PCIE_LANE_GB_PER_S.get(card.max_pcie_generation or 0)
    return lane * card.max_pcie_width if lane and card.max_pcie_width else None


def _bus(bus_id: str) -> str:
    """Return a bus id without its domain, which NVML writes with 4 or 8 digits.

    >>> _bus("00000000:3B:00.0") == _bus("0000:3b:00.0"), _bus("switch")
    (True, 'switch')
    """
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):x}:{rest}" if rest else bus_id


class NvmlError(Exception):
    """NVML cannot be used: no driver, no permission, or pynvml is not installed."""


def open_nvml(nvml: Any = None) -> Any:
    """Return pynvml, initialized, which may take seconds; or the given module in its place.

    Raises:
        NvmlError: with the driver's reason.
    """
    try:
        if nvml is None:
            import pynvml  # noqa: PLC0415 -- only on nodes with NVIDIA GPUs

            nvml = pynvml
        nvml.nvmlInit()
    except Exception as error:  # a broken driver may raise anything
        raise NvmlError(str(error) or type(error).__name__) from error
    return nvml


@contextmanager
def nvml_session() -> Iterator[Any]:
    """Open NVML for the block, and close it at its end.

    Raises:
        NvmlError: with the driver's reason.
    """
    nvml = open_nvml()
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def gpus_by_uuid(nvml: Any) -> dict[str, Any]:
    """Return the handles of all GPUs that NVML shows, in its order, by UUID."""
    numbers = range(nvml.nvmlDeviceGetCount())
    handles = map(nvml.nvmlDeviceGetHandleByIndex, numbers)
    return {nvml_text(nvml.nvmlDeviceGetUUID(handle)): handle for handle in handles}


def visible_gpus(setting: str | None, uuids: Sequence[str]) -> list[int]:
    """Return the numbers of the GPUs that CUDA_VISIBLE_DEVICES leaves; None: not set.

    CUDA stops at the first word that names none (CUDA's programming guide). Beginnings of UUIDs
    are names, too; an instance of a divided GPU counts as its first GPU.

    >>> visible_gpus("1,GPU-a", ["GPU-a1", "GPU-b1"]), visible_gpus("0,-1,1", ["GPU-a", "GPU-b"])
    ([1, 0], [0])
    >>> visible_gpus("", ["GPU-a"]), visible_gpus(None, ["GPU-a"]), visible_gpus("MIG-5", ["GPU-a"])
    ([], [0], [0])
    """
    if setting is None:
        return [*range(len(uuids))]
    numbers: list[int] = []
    for word in map(str.strip, setting.split(",")):
        number = _number_of(word, uuids)
        if number is None or (word.startswith("MIG-") and numbers):
            break
        if number in numbers:  # CUDA then shows none
            return []
        numbers.append(number)
    return numbers


def _number_of(word: str, uuids: Sequence[str]) -> int | None:
    """Return the number of the GPU that a word names; None if it names none."""
    if word.isdigit():
        return int(word) if int(word) < len(uuids) else None
    if word.startswith("MIG-"):
        return 0 if uuids else None
    named = (number for number, uuid in enumerate(uuids) if uuid.startswith(word))
    return next(named, None) if word.startswith("GPU-") else None


def nvml_text(value: str | bytes) -> str:
    """Return a text of NVML, which older versions of pynvml return as bytes."""
    return value.decode() if isinstance(value, bytes) else value
