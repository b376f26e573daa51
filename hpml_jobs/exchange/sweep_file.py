"""A sweep of message times from a CSV file, e.g. the table that nccl-tests prints."""

from collections.abc import Mapping

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.formulas import bus_gb_per_s
from hpml_jobs.core.text import counted
from hpml_jobs.exchange.csv_rows import ColumnSpec, FieldError, number, read_rows, whole
from hpml_jobs.predict.network import BusSweep

SPEED, SECONDS = "gb_per_s", "seconds"

COLUMNS = {
    "bytes": ColumnSpec(whole, required=True),
    SPEED: ColumnSpec(number, required=True, instead=SECONDS),
    SECONDS: ColumnSpec(number),
    "gpus": ColumnSpec(whole),
    "nodes": ColumnSpec(whole),
}
"""Bytes of a message with its bus bandwidth in GB/s or its seconds; `gpus`, `nodes`: where."""


def read_sweep(content: bytes, file: str) -> BusSweep:
    """Return the all-reduces of a file as bus bandwidths by message bytes.

    Without a column `nodes` they were measured across nodes. Seconds need a column `gpus`.

    Raises:
        HpmlError: the file cannot be read, or has values that no sweep has; all lines are named.
    """
    table = read_rows(content, file, COLUMNS)
    faults = [f"line {fault.line} {fault.text}" for fault in table.faults]
    speeds: dict[int, float] = {}
    places = set()
    for row in table.rows:
        try:
            values = _values(row.fields)
            size, speed = int(values["bytes"]), _speed(values)
        except FieldError as fault:
            faults.append(f"line {row.line}: {fault}")
            continue
        if size in speeds:
            faults.append(f"line {row.line}: bytes={size} is given twice")
        speeds[size] = speed
        places.add((values.get("gpus"), values.get("nodes")))
    if len(places) > 1:
        faults.append("its lines differ in gpus or nodes: give a file for one of them")
    if not faults and len(speeds) < 2:
        faults.append(f"it has {counted(len(speeds), 'size')} of messages: a sweep needs 2 or more")
    if faults:
        raise HpmlError(f"{file}: {'; '.join(faults)}")
    ((_, nodes),) = places
    return BusSweep(file, dict(sorted(speeds.items())), crosses_nodes=nodes != 1)


def _values(fields: Mapping[str, str]) -> dict[str, float]:
    """Return the numbers of a row by column.

    Raises:
        FieldError: a number is missing or wrong; the message names its column.
    """
    if "bytes" not in fields:
        raise FieldError("bytes is missing")
    values = {}
    for name, text in fields.items():
        try:
            values[name] = float(COLUMNS[name].read(text))
        except FieldError as fault:
            raise FieldError(f"{name}={text}: {fault}") from None
    return values


def _speed(values: Mapping[str, float]) -> float:
    """Return the bus bandwidth of a row, in GB/s.

    Raises:
        FieldError: it has neither that nor its seconds on a number of GPUs.
    """
    if SPEED in values:
        return values[SPEED]
    if SECONDS not in values:
        raise FieldError(f"{SPEED} or {SECONDS} is missing")
    gpus = int(values.get("gpus", 1))
    if gpus < 2:
        raise FieldError(f"{SECONDS} needs a column gpus with the number of GPUs, 2 or more")
    return bus_gb_per_s(int(values["bytes"]), values[SECONDS], gpus)
