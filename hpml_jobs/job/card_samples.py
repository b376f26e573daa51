"""Clocks, power, utilization, heat and reasons for lower clocks of GPUs while a cell runs.

The job's wrapper takes them, which waits for its workers anyway. It is a process of its own: the
ranks' interpreters, their memory and CUDA have no part in it, and the readings use less than 1 % of
one CPU. A thread inside a rank would take turns with the training loop for the interpreter.
"""

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

import msgspec

from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.gpus import (
    CardSamples,
    gpus_by_uuid,
    nvml_text,
    open_nvml,
    throttle_reasons,
    visible_gpus,
)
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.validation import InvalidRecordError, decode
from hpml_jobs.core.value import Value
from hpml_jobs.study.cell_folder import AttemptFolder
from hpml_jobs.study.files import encode, read_bytes, read_json, write_whole

INTERVAL_S = 0.5
"""Time between two readings; NVML's power is a mean over up to a second."""

STOP_S = 2.0
"""How long to wait for a reading that a driver does not end."""

OTHER_NODES_S = 5.0
"""How long to wait for the files of other nodes, which a shared file system may show late."""


class CardSample(Value, frozen=True, kw_only=True):
    """One reading of a GPU; `at_s` is of the node's monotonic clock."""

    at_s: float
    sm_clock_mhz: int
    memory_clock_mhz: int
    power_w: float
    temperature_c: int
    reasons: int  # NVML's bit mask
    utilization_percent: int | None = None


class NodeSamples(Value, frozen=True, kw_only=True):
    """All readings of a node's GPUs, by UUID."""

    by_uuid: dict[str, tuple[CardSample, ...]] = {}


class CardSampler:
    """Reads the cell's GPUs of this node every half second, in a thread, until it is stopped.

    A cell on the CPU has `gpus` 0, and nothing is read.
    """

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._samples: dict[str, list[CardSample]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="card-samples", daemon=True
        )

    def start(self) -> None:
        """Start reading."""
        if self._gpus:
            self._thread.start()

    def stop(self) -> NodeSamples:
        """Stop reading, and return what was read; nothing without NVML."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        by_uuid = {uuid: tuple(samples) for uuid, samples in [*self._samples.items()]}
        return NodeSamples(by_uuid=by_uuid)

    def end(self, file: CellFile, paths: AttemptFolder, node: int, code: int) -> None:
        """Stop reading; add what was read to the record of workers that ended well."""
        samples = self.stop()
        if not samples.by_uuid or code != 0:
            return
        if node == 0:
            add_samples(paths, file.cell.nodes, samples)
        else:
            write_samples(paths, node, samples)

    def _run(self) -> None:
        try:
            nvml = open_nvml()
            handles = _handles(nvml, self._gpus)
        except Exception:  # no NVML: the worker's record says why
            return
        while handles and not self._stop.wait(INTERVAL_S):
            for uuid, handle in [*handles.items()]:
                try:
                    self._samples.setdefault(uuid, []).append(_sample(nvml, handle))
                except Exception:  # the GPU does not know a question, or is lost
                    del handles[uuid]


def sampler_of(file: CellFile) -> CardSampler:
    """Return what reads the GPUs of a cell on one of its nodes."""
    return CardSampler(
        file.cell.gpus_per_node if file.cell.device is Device.CUDA else 0
    )


def _handles(nvml: Any, gpus: int) -> dict[str, Any]:
    """Return the handles of the first GPUs that CUDA shows, by UUID, as the workers take them."""
    # the others may be other jobs', and a query may take 20 ms
    by_uuid = gpus_by_uuid(nvml)
    uuids = [*by_uuid]
    visible = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)
    visible_uuids = [uuids[number] for number in visible]
    # NVML counts by bus, CUDA begins with the fastest: of several models read all
    models = {
        nvml_text(nvml.nvmlDeviceGetName(by_uuid[uuid])) for uuid in visible_uuids
    }
    if len(models) == 1:
        visible_uuids = visible_uuids[:gpus]
    return {uuid: by_uuid[uuid] for uuid in visible_uuids}


def _sample(nvml: Any, handle: Any) -> CardSample:
    return CardSample(
        at_s=time.monotonic(),
        sm_clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        memory_clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        power_w=nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        temperature_c=nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        reasons=int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        utilization_percent=_utilization_percent(nvml, handle),
    )


def _utilization_percent(nvml: Any, handle: Any) -> int | None:
    with contextlib.suppress(nvml.NVMLError):  # an instance of a divided GPU has none
        return int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    return None


def write_samples(paths: AttemptFolder, node: int, samples: NodeSamples) -> None:
    """Leave the readings of this node for the first node, which publishes the record."""
    with contextlib.suppress(OSError):
        write_whole(paths.samples_of(node), encode(samples), parents=False)


def add_samples(paths: AttemptFolder, nodes: int, samples: NodeSamples) -> None:
    """Add the readings during the timed epoch to the attempt's record; leave an invalid one."""
    by_uuid = dict(samples.by_uuid)
    deadline = time.monotonic() + OTHER_NODES_S
    for node in range(1, nodes):
        by_uuid |= _of_other_node(paths, node, deadline)
    try:
        record = decode(read_bytes(paths.record), str(paths.record))
    except (OSError, InvalidRecordError):
        return
    ranks = tuple(_with_samples(rank, by_uuid) for rank in record.ranks)
    if ranks != record.ranks:
        changed: Record = msgspec.structs.replace(record, ranks=ranks)
        write_whole(paths.record, encode(changed), parents=False)


def _of_other_node(
    paths: AttemptFolder, node: int, deadline: float
) -> Mapping[str, tuple[CardSample, ...]]:
    while True:
        try:
            return read_json(paths.samples_of(node), NodeSamples).by_uuid
        except (OSError, ValueError):
            if time.monotonic() >= deadline:
                return {}
            time.sleep(0.2)


def _with_samples(rank: Rank, by_uuid: Mapping[str, Sequence[CardSample]]) -> Rank:
    timed = rank.timed
    if timed.started_s is None:
        return rank
    end_s = timed.started_s + timed.epoch_s
    cards = []
    for card in rank.cards:
        samples = by_uuid.get(card.uuid, ())
        summary = summarize([s for s in samples if timed.started_s <= s.at_s <= end_s])
        cards.append(
            msgspec.structs.replace(card, samples=summary) if summary else card
        )
    return msgspec.structs.replace(rank, cards=tuple(cards))


def summarize(samples: Sequence[CardSample]) -> CardSamples | None:
    """Return the summary of one GPU's readings; None without any."""
    if not samples:
        return None
    watts = [sample.power_w for sample in samples]
    busy = [s.utilization_percent for s in samples if s.utilization_percent is not None]
    reasons = Counter(
        name for sample in samples for name in throttle_reasons(sample.reasons)
    )
    return CardSamples(
        count=len(samples),
        sm_clock_mhz=_spread([sample.sm_clock_mhz for sample in samples]),
        memory_clock_mhz=_spread([sample.memory_clock_mhz for sample in samples]),
        power_w=(min(watts), mean(watts), max(watts)),
        temperature_c=max(sample.temperature_c for sample in samples),
        throttle_reasons={
            name: count / len(samples) for name, count in sorted(reasons.items())
        },
        utilization_percent=mean(busy) if busy else None,
    )


def _spread(values: Sequence[int]) -> tuple[int, int, int]:
    return min(values), round(median(values)), max(values)
