"""The command that reads records to people: record."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.text import Text

from hpml_jobs.checks import of_study
from hpml_jobs.checks.result import CheckResult, Level, percent
from hpml_jobs.cli.console import console, print_json
from hpml_jobs.cli.options import Json, Outputs, Pattern, StudyName, select_study
from hpml_jobs.core import formulas
from hpml_jobs.core.measurements import Communication
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import InvalidRecordError
from hpml_jobs.core.value import Value
from hpml_jobs.report.text.numbers import DASH, count, gb_per_s, seconds, significant
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.study import Study

LEVELS = {Level.FAIL: "red", Level.WARN: "yellow", Level.PASS: "green"}
"""From what is to be read first."""


class Unit(StrEnum):
    """How a key number with a fraction is written."""

    SECONDS = "s"
    SHARE = "%"
    RATE = "per second"
    BANDWIDTH = "GB/s"
    PLAIN = ""


UNITS = {
    "epoch_s": Unit.SECONDS,
    "epoch_s_by_rank": Unit.SECONDS,
    "train_s": Unit.SECONDS,
    "stall_s": Unit.SECONDS,
    "images_per_s": Unit.RATE,
    "phases": Unit.SECONDS,
    "compute_s": Unit.SECONDS,
    "comm_exposed_s": Unit.SECONDS,
    "comm_total_s": Unit.SECONDS,
    "comm_cost_s": Unit.SECONDS,
    "gradients_net_s": Unit.SECONDS,
    "skew_s": Unit.SECONDS,
    "net_s": Unit.SECONDS,
    "bus_gb_per_s": Unit.BANDWIDTH,
    "closure": Unit.SHARE,
    "overhead": Unit.SHARE,
    "profiler_disagreement": Unit.SHARE,
    "loss": Unit.PLAIN,
    "accuracy": Unit.SHARE,
    "test_accuracy_by_rank": Unit.SHARE,
}
"""The unit of every key number that has a fraction; counts, answers and texts have none."""


class KeyNumbers(Value, frozen=True, kw_only=True):
    """One cell's record for the reader: its key numbers by name (None: not known), and checks.

    Without a record that can be used, the outcome and the reason.
    """

    slug: str
    outcome: Outcome
    reason: str = ""
    numbers: dict[str, Any] = {}
    checks: tuple[CheckResult, ...] = ()


def record(
    study: StudyName = None,
    pattern: Pattern = None,
    outputs: Outputs = None,
    json: Json = False,
) -> None:
    """Every cell's key numbers, and all checks of it: passed, doubtful, failed, with the reason.

    Example: hpml-jobs record digits-local 'ddp-4gpu-*'
    """
    asked = select_study(study, pattern, outputs)
    chosen = asked.chosen(read(asked.study))
    if json:
        print_json({"study": asked.study.name, "cells": chosen})
        return
    out = console()
    for one in chosen:
        _show(out, one)


def read(study: Study) -> list[KeyNumbers]:
    """Every cell of a study, its record judged among the others; from its files alone."""
    looks = {folder.slug: _look(folder) for folder in study.cells()}
    judged = of_study([look for look in looks.values() if isinstance(look, Record)])
    return [
        look if isinstance(look, KeyNumbers) else _tell(look, judged[slug])
        for slug, look in looks.items()
    ]


def _look(folder: CellFolder) -> Record | KeyNumbers:
    try:
        found = folder.read_record()
    except InvalidRecordError as fault:
        return KeyNumbers(slug=folder.slug, outcome=Outcome.INVALID, reason=str(fault))
    if found is None:
        reason = "no record; hpml-jobs status tells why"
        return KeyNumbers(slug=folder.slug, outcome=Outcome.MISSING, reason=reason)
    return found


def _tell(found: Record, checks: tuple[CheckResult, ...]) -> KeyNumbers:
    ok = found.outcome is Outcome.OK
    return KeyNumbers(
        slug=found.slug,
        outcome=found.outcome,
        reason=found.reason or "",
        numbers=numbers(found) if ok else {},
        checks=checks,
    )


def numbers(found: Record) -> dict[str, Any]:
    """The key numbers of a record of outcome ok, by names with units; shares are of 1."""
    cell, phases, talk = found.cell, found.phases, found.communication
    exchange = found.exchange
    told: dict[str, Any] = {
        "epoch_s": found.epoch_s,
        "epoch_s_by_rank": [rank.timed.epoch_s for rank in found.ranks],
        "train_s": found.train_s,
        "stall_s": found.stall_s,
        "images_per_s": formulas.images_per_s(found.samples, found.epoch_s),
        "iterations": found.iterations,
        "samples": found.samples,
        "parameters": found.model.parameters if found.model else None,
        "phases": {
            name.removesuffix("_s"): getattr(phases, name) for name in phases.__struct_fields__
        }
        if phases
        else None,
        "compute_s": found.compute_s,
        "comm_exposed_s": found.comm_exposed_s,
        "comm_total_s": found.comm_total_s,
        "comm_cost_s": found.comm_cost_s,
        "gradients_net_s": found.gradients_net_s,
        "skew_s": exchange.skew_s if exchange else None,
        "net_s": exchange.net_s if exchange else None,
        "gradient_bytes": talk.bytes_of("gradients") if talk else None,
        "messages": _messages(talk) if talk else None,
    }
    net_s, sent = found.gradients_net_s, told["gradient_bytes"]
    by_ring = cell.strategy.by_all_reduce and cell.gpus > 1
    told["bus_gb_per_s"] = (
        formulas.bus_gb_per_s(sent, net_s, cell.gpus) if by_ring and sent and net_s else None
    )
    return told | _quality(found)


def _messages(talk: Communication) -> list[str]:
    """Messages of one kind and purpose in one text each; sizes are of one message."""
    kinds = dict.fromkeys((message.kind, message.purpose) for message in talk.messages)
    texts = []
    for kind, purpose in kinds:
        alike = [m for m in talk.messages if (m.kind, m.purpose) == (kind, purpose)]
        sizes = sorted({m.bytes for m in alike})
        span = " to ".join(count(size) for size in dict.fromkeys((sizes[0], sizes[-1])))
        texts.append(f"{sum(m.count for m in alike)} x {kind} of {span} bytes ({purpose})")
    return texts


def _quality(found: Record) -> dict[str, Any]:
    """What tells how good the numbers are, and what the model learnt."""
    epoch = found.instrumented.epoch("instrumented") if found.instrumented else None
    traces = [rank.trace for rank in found.ranks if rank.trace]
    gaps = [trace.disagreement for trace in traces if trace.disagreement is not None]
    return {
        "closure": epoch.closure if epoch else None,
        "overhead": found.overhead,
        "profiler_disagreement": max(gaps) if gaps else None,
        "loss": found.loss,
        "accuracy": found.accuracy,
        "test_accuracy_by_rank": [rank.test_accuracy for rank in found.ranks],
        "parameters_equal": _equal([rank.parameters_hash for rank in found.ranks]),
        "buffers_equal": _equal([rank.buffers_hash for rank in found.ranks]),
    }


def _equal(hashes: list[str]) -> bool | None:
    """Whether all ranks have the same; None where there is one rank, or a hash is missing."""
    return None if len(hashes) < 2 or "" in hashes else len(set(hashes)) == 1


def _show(out: Console, told: KeyNumbers) -> None:
    out.print(Text(f"==== {told.slug}: {told.outcome.value} {told.reason}".rstrip(), "bold"))
    for name, value in told.numbers.items():
        text = _text(value, UNITS.get(name, Unit.PLAIN))
        if text:
            out.print(Text(f"  {name:22} {text}"))
    for level, colour in LEVELS.items():
        for result in told.checks:
            if result.level is level:
                line = Text(f"  {level.value} ", style=colour)
                out.print(line.append(f"{result.check}: {result.reason}", style="default"))


def _text(value: Any, unit: Unit = Unit.PLAIN) -> str:
    """A number as people read it; empty where it is not known.

    >>> _text(8.0, Unit.SECONDS), _text(0.002, Unit.SHARE), _text(20_480)
    ('8.000 s', '0.2 %', '20,480')
    >>> _text(True), _text({"stall": 0.16, "h2d": 0.08}, Unit.SECONDS)
    ('yes', 'stall 0.160 s, h2d 0.0800 s')
    """
    match value:
        case None | []:
            return ""
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return ", ".join(f"{key} {_text(part, unit)}" for key, part in value.items())
        case list():
            return ", ".join(_text(part, unit) or DASH for part in value)
        case int():
            return count(value)
        case float():
            return _float(value, unit)
        case _:
            return str(value)


def _float(value: float, unit: Unit) -> str:
    match unit:
        case Unit.SECONDS:
            return f"{seconds(value)} s"
        case Unit.SHARE:
            return percent(value)
        case Unit.RATE:
            return f"{significant(value, 4)} per second"
        case Unit.BANDWIDTH:
            return f"{gb_per_s(value)} GB/s"
        case Unit.PLAIN:
            return significant(value, 4)
