"""Which records may share a table: those of one workload, measured under the same conditions."""

from collections.abc import Iterable, Sequence

import msgspec

from hpml_jobs.core.cell import Cell, Device, Protocol
from hpml_jobs.core.record import Facts, Record
from hpml_jobs.core.value import Value
from hpml_jobs.core.workload import Workload
from hpml_jobs.report.merge.cells import CellResult
from hpml_jobs.report.merge.entries import place_order

Conditions = tuple[tuple[str, str], ...]
"""What must agree within a table, as (what, value) in words for a heading."""

WORKLOAD, GPU_MODEL, CPU_MODEL, TORCH = "workload", "GPU model", "CPU model", "torch"
PARAMETERS = "trainable parameters"
"""Conditions that are looked up by their name."""

UNRECORDED = "not recorded"
NONE = "none"
"""How a condition says that there is no such thing, or that it is not known."""

_WORKLOAD_FIELDS = msgspec.structs.fields(Workload)


class ConditionGroup(Value, frozen=True, kw_only=True):
    """Cells that may share a table.

    `measured_as` is empty where none of them has a record. A cell that ran under unknown conditions
    is in every group it may belong to, and `uncertain` names it where there are several.
    """

    asked: Conditions
    measured_as: Conditions
    cells: tuple[CellResult, ...]
    uncertain: frozenset[str] = frozenset()

    @property
    def conditions(self) -> Conditions:
        """All that agrees."""
        return self.asked + self.measured_as


def asked(cell: Cell) -> Conditions:
    """What a cell asks for besides its place in the tables (row, batch, seed, repeat).

    `gpu_type` is among it, so all cells at one place are runs of the same thing. Not among it:
    what was done to it (that is the row's), seed (other seeds are other runs), `probe_s`,
    `evaluate` and `quantize` (they come after an epoch), and the protocol, since the timed epoch is
    the same in both; epochs beyond those a protocol needs change what is learnt.
    """
    workload = [
        (WORKLOAD if field.name == "name" else field.name, getattr(cell.workload, field.name))
        for field in _WORKLOAD_FIELDS
    ]
    rest = [
        ("device", cell.device.value),
        ("GPU kind asked for", cell.gpu_type),
        ("measured", "elsewhere" if cell.protocol is Protocol.IMPORTED else "here"),
        ("epochs", cell.epochs if cell.epochs > cell.protocol.epochs else "as the protocol needs"),
        ("threads per process", cell.threads),
        ("DataLoader workers per process", cell.loader_workers),
    ]
    return _words([*workload, *rest])


def measured_as(record: Record, facts: Facts) -> Conditions:
    """The hardware and software a record was measured with; from elsewhere, what is told of it.

    The backend is not among it (a single process has none), nor the host: two nodes of one kind
    may share a table.
    """
    if record.imported is not None:
        told = record.imported.gpu_model
        return _words([(PARAMETERS, _parameters(record)), (GPU_MODEL, told)])
    return _words(
        [
            (PARAMETERS, _parameters(record)),
            (GPU_MODEL, _gpu_model(record, facts)),
            (CPU_MODEL, facts.cpu_model),
            ("driver", facts.driver),
            (TORCH, facts.torch),
            ("CUDA", facts.cuda),
            ("cuDNN", facts.cudnn),
            ("NCCL", facts.nccl),
            ("TF32 in matmul", facts.tf32_matmul),
            ("TF32 in cuDNN", facts.tf32_cudnn),
            ("cuDNN benchmark", facts.cudnn_benchmark),
            ("cuDNN deterministic", facts.cudnn_deterministic),
            ("hpml_jobs", facts.hpml_jobs),
            ("commit", facts.commit),
            ("uncommitted changes", facts.dirty),
        ]
    )


def _parameters(record: Record) -> int | None:
    """The count of what was trained; a cell out of memory may only have claimed one."""
    return record.model.parameters if record.model else record.cell.workload.parameters


def _gpu_model(record: Record, facts: Facts) -> str | None:
    """The GPUs' model; all of them where one cell ran on several."""
    if record.cell.device is Device.CPU:
        return None
    models = sorted({device for rank in record.ranks for device in rank.devices})
    return " + ".join(models) if len(models) > 1 else facts.gpu_model


def _words(pairs: Iterable[tuple[str, object]]) -> Conditions:
    return tuple((what, _word(value)) for what, value in pairs)


def _word(value: object) -> str:
    match value:
        case None:
            return NONE
        case True | False:
            return "yes" if value else "no"
        case _:
            return str(value) or "not known"


def group(cells: Iterable[CellResult]) -> list[ConditionGroup]:
    """Cells (those whose cell is known) in groups that may share tables, in a settled order."""
    measured: dict[tuple[Conditions, Conditions], list[CellResult]] = {}
    others: list[tuple[Conditions, CellResult]] = []
    for found in cells:
        if found.cell is None:
            continue
        key, conditions = asked(found.cell), _conditions(found.record)
        if conditions is None:
            others.append((key, found))
        else:
            measured.setdefault((key, conditions), []).append(found)
    known = list(measured)
    uncertain = set()
    for key, found in others:
        homes = [pair for pair in known if pair[0] == key] or [(key, ())]
        for home in homes:
            measured.setdefault(home, []).append(found)
        if len(homes) > 1:
            uncertain.add(found.slug)
    return [
        ConditionGroup(
            asked=key,
            measured_as=facts,
            cells=tuple(sorted(members, key=place_order)),
            uncertain=frozenset(uncertain & {member.slug for member in members}),
        )
        for (key, facts), members in sorted(measured.items(), key=lambda item: item[0])
    ]


def _conditions(record: Record | None) -> Conditions | None:
    """What a record was measured with; None where there is none or it does not tell."""
    if record is None:
        return None
    facts = record.facts or (Facts() if record.imported else None)
    if facts is None or (_parameters(record) is None and not record.imported):
        return None
    return measured_as(record, facts)


def differences(groups: Sequence[ConditionGroup]) -> dict[str, list[str]]:
    """What sets groups apart: what -> each group's value, in the groups' order.

    Two workloads differ in nearly everything; there the name says enough.
    """
    tables = [dict(alike.conditions) for alike in groups]
    names = dict.fromkeys(what for table in tables for what in table)
    found = {}
    for what in names:
        values = [table.get(what, UNRECORDED) for table in tables]
        if len({*values} - {UNRECORDED}) > 1 and not _told_by_name(what, tables):
            found[what] = values
    return found


def _told_by_name(what: str, tables: Sequence[dict[str, str]]) -> bool:
    """Whether a difference in `what` is only a difference between workloads of other names."""
    if what not in {field.name for field in _WORKLOAD_FIELDS} | {PARAMETERS}:
        return False
    values: dict[str, set[str]] = {}
    for table in tables:
        if what in table:
            values.setdefault(table[WORKLOAD], set()).add(table[what])
    return all(len(same) == 1 for same in values.values())
