"""A plan for people: the cells, the arrays and their scripts, and where each value came from."""

from collections.abc import Sequence
from typing import Any

import msgspec

from hpml_jobs.core.cluster import Launcher
from hpml_jobs.plan.plan import Plan
from hpml_jobs.submit.batches import batches
from hpml_jobs.submit.selection import Selection
from hpml_jobs.submit.send import script


def scripts(plan: Plan, selection: Selection) -> list[tuple[str, str]]:
    """Every batch that would be sent, and its sbatch script; none on a local machine."""
    if plan.cluster.launcher is Launcher.LOCAL:
        return []
    return [(str(batch), script(plan, batch)) for batch in batches(plan, selection.send)]


def values(plan: Plan) -> list[tuple[str, str, str]]:
    """Every value that is not simply absent: key, value, where it came from."""
    cells = [one.cell for one in plan.cells]
    rows = [("study", plan.study.name), ("outputs", str(plan.study.root.parent))]
    for name in cells[0].__struct_fields__:
        if name not in ("workload", "recipe", "quantize"):
            rows.append((name, _all(getattr(cell, name) for cell in cells)))
    rows.append(("minutes", _all(one.shape.minutes for one in plan.cells)))
    rows.append(("data.root", _all(one.file.data_root for one in plan.cells)))
    for field in cells[0].workload.__struct_fields__:
        key = "data.limit" if field == "limit" else f"workload.{field}"
        rows.append((key, _all(getattr(cell.workload, field) for cell in cells)))
    quantizes = [cell.quantize for cell in cells if cell.quantize is not None]
    rows += _rows("recipe", [cell.recipe for cell in cells]) + _rows("quantize", quantizes)
    rows += [(f"cluster.{name}", _text(value)) for name, value in _cluster_facts(plan)]
    return [(key, value, _origin(plan, key)) for key, value in rows if value != "–"]


def _rows(group: str, found: Sequence[msgspec.Struct]) -> list[tuple[str, str]]:
    """A row for every field of a part that a cell has."""
    fields = found[0].__struct_fields__ if found else ()
    return [(f"{group}.{name}", _all(getattr(one, name) for one in found)) for name in fields]


def _cluster_facts(plan: Plan) -> list[tuple[str, Any]]:
    """What is set on the cluster; a container's details only where there is an image."""
    facts: dict[str, Any] = msgspec.to_builtins(plan.cluster)
    container = facts.pop("container")
    if container["image"] is not None:
        facts |= {f"container.{name}": value for name, value in container.items()}
    return [(name, value) for name, value in facts.items() if value and name not in _INNER]


_INNER = ("known_as", "account_example", "account_rule", "partition_rule", "launcher")


def _all(found: Any) -> str:
    return ", ".join(dict.fromkeys(_text(value) for value in found))


def _text(value: Any) -> str:
    """As it is written in a config, not as Python writes it."""
    if value is None:
        return "–"
    if isinstance(value, bool | dict | list | tuple):
        return msgspec.json.encode(value).decode().replace('"', "").replace(",", ", ")
    return str(value)


_WORKED_OUT = {
    "study": "from workload, cluster and GPU kind",
    "nodes": "from gpus and the cluster's GPUs per node",
    "device": "what the cluster has",
    "gpu_type": "the cluster's default kind",
    "repeat": "from repeats",
    "strategy": "conf/config.yaml; gpus=1 is single",
    "data.root": "the cluster's, else $SCRATCH/data, else ./data",
    "workload.images": "counted",
}


def _origin(plan: Plan, key: str) -> str:
    origins = plan.origins
    if key in origins:
        return origins[key]
    group = key.partition(".")[0]
    if group in ("workload", "recipe") and key not in _WORKED_OUT:
        return origins[f"{group}."]
    if key.startswith("cluster."):
        parents = [origin for name, origin in origins.items() if name.startswith(f"{key}.")]
        return ", ".join([*parents, origins["cluster."]])
    return _WORKED_OUT.get(key, "conf/config.yaml")
