"""A preview of a plan: its cells, scripts and GPU-hours, and the origin of values."""

import re
import subprocess
import tempfile
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.secrets import hide_secrets, shown_value
from hpml_jobs.core.text import few
from hpml_jobs.core.value import Value
from hpml_jobs.plan.cells import Plan, PlannedCell
from hpml_jobs.slurm.commands import ASK_TIMEOUT_S, sbatch_environment
from hpml_jobs.submit.job_requests import (
    JobRequest,
    check_submission,
    exclusive_note,
    gpu_hours_of,
    isolation_note,
    make_requests,
)
from hpml_jobs.submit.scripts import script
from hpml_jobs.submit.selection import Selection


class CellRow(Value, frozen=True, kw_only=True):
    """A cell of a plan: what it requests, its job, and why it is submitted or left out."""

    cell: str
    shape: str
    job: str
    why: str


class BlockRow(Value, frozen=True, kw_only=True):
    """The submitted cells of the grid's blocks of one name, each in one block only.

    `gpu_hours` are the most that they can use: the GPUs of each until its time limit.
    """

    block: str
    cells: int
    gpu_hours: float


class JobScript(Value, frozen=True, kw_only=True):
    """The sbatch script of a job request."""

    shape: str
    script: str


class ConfigValue(Value, frozen=True, kw_only=True):
    """A key with its value in all cells, and where that comes from."""

    key: str
    value: str
    origin: str = msgspec.field(name="from")


class Preview(Value, frozen=True, kw_only=True):
    """The output of `hpml-jobs plan`; `refused` is the reason why the plan cannot be submitted.

    `overlap` says how long the cells take one by one, or that several would share a node;
    `exclusive` what nodes without jobs of others cost. `blocks` are those of a grid that names
    them. `values` are empty where their origins are not known, as in a resubmission.
    """

    study: str
    gpu_hours: float
    refused: str = ""
    overlap: str = ""
    exclusive: str = ""
    cells: list[CellRow]
    blocks: list[BlockRow]
    scripts: list[JobScript] = []
    values: list[ConfigValue]


def preview_of(selection: Selection) -> Preview:
    """Return what a submission of the selected cells would be; on a local machine, no scripts."""
    plan = selection.plan
    requests = make_requests(plan, selection.send)
    preview = Preview(
        study=plan.study.name,
        gpu_hours=gpu_hours_of(requests),
        cells=cell_rows(selection, {}),
        blocks=_block_rows(selection),
        values=[
            ConfigValue(
                key=key,
                value=shown_value(key, value),
                origin=_origin(plan.origins, key),
            )
            for key, value in values_of(plan)
            if value != _ABSENT and plan.origins
        ],
    )
    if plan.cluster.is_local:
        return preview
    return msgspec.structs.replace(
        preview,
        refused=_refusal(selection, requests),
        overlap=isolation_note(plan.cluster, requests),
        exclusive=exclusive_note(plan.cluster, requests),
        scripts=[
            JobScript(
                shape=str(request),
                script=hide_secrets(script(plan.study, plan.cluster, request)),
            )
            for request in requests
        ],
    )


def _block_rows(selection: Selection) -> list[BlockRow]:
    """Return a row per name of a grid's blocks, in their order."""
    names = dict.fromkeys(planned.block for planned in selection.plan.cells)
    if not any(names):
        return []
    rows = []
    for name in names:
        cells = [planned for planned in selection.send if planned.block == name]
        rows.append(
            BlockRow(
                block=name or _ABSENT,
                cells=len(cells),
                gpu_hours=sum(planned.gpu_hours for planned in cells),
            )
        )
    return rows


ACCEPTED = re.compile(
    r"to start at (\S+).*using \d+ processors on nodes (\S+) in partition (\S+)"
)
"""What sbatch --test-only says: the moment, the nodes, the partition."""


def ask_sbatch(text: str) -> subprocess.CompletedProcess[str]:
    """Ask sbatch about a script that is not submitted.

    Raises:
        OSError, subprocess.TimeoutExpired: it does not answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test.sh"
        path.write_text(text)
        return subprocess.run(
            ["sbatch", "--test-only", str(path)],
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            env=sbatch_environment(text),
            check=False,
        )


def cell_rows(selection: Selection, jobs: Mapping[str, str]) -> list[CellRow]:
    """Return a row per cell of a plan; `jobs` are those of the submitted cells, by slug."""
    rows = []
    for planned in selection.plan.cells:
        slug = planned.slug
        state = selection.left_out.get(slug)
        if state:
            why = f"left out: {state.outcome.value}"
            why += f" ({state.brief})" if state.outcome is Outcome.UNKNOWN else ""
        else:
            why = selection.reasons[slug]
        job = (state.job if state else jobs.get(slug)) or _ABSENT
        shape = str(planned.shape)
        if selection.plan.cluster.is_local:  # which requests only the time
            shape = f"time limit {planned.shape.minutes} min"
        rows.append(CellRow(cell=slug, shape=shape, job=job, why=why))
    return rows


def _refusal(selection: Selection, requests: list[JobRequest]) -> str:
    try:
        check_submission(selection, requests)
    except UsageError as error:
        return str(error)
    return ""


def values_of(plan: Plan) -> list[tuple[str, str]]:
    """Return every key of the configuration with its value; differing values are listed."""
    rows = [
        ("study", plan.study.name),
        ("outputs", str(plan.study.root.parent)),
    ]
    named = (planned.cell.workload.args for planned in plan.cells)
    args = sorted(set[str]().union(*named))
    texts: dict[str, dict[str, None]] = {}  # of each key, those that differ
    for planned in plan.cells:
        for key, value in _values_of_cell(planned, args).items():
            texts.setdefault(key, {})[_text(value)] = None
    rows += [(key, ", ".join(of_key)) for key, of_key in texts.items()]
    rows += [(f"cluster.{name}", _text(value)) for name, value in _cluster_values(plan)]
    return rows


def _values_of_cell(planned: PlannedCell, args: Iterable[str]) -> dict[str, Any]:
    """Return the values of all keys of a cell; `args` are those of any cell's workload."""
    cell = planned.cell
    parts = ("workload", "recipe", "path", "script", "quantize", "epoch_iterations")
    values = _fields("", cell, without=parts) | {"iterations": cell.epoch_iterations}
    values |= _fields("", cell.path)
    values |= {"minutes": planned.shape.minutes, "data.root": planned.file.data_root}
    for key, value in _fields("workload.", cell.workload).items():
        if key == "workload.args":
            values |= {f"{key}.{name}": value.get(name) for name in args}
        elif key in ("workload.code", "workload.imported"):
            values[key] = few(map(str, value)) or None
        else:
            values[key] = value
    values |= _fields("recipe.", cell.recipe) | _fields("quantize.", cell.quantize)
    values |= _fields("", cell.script)
    return values


def _fields(
    prefix: str, part: msgspec.Struct | None, without: Container[str] = ()
) -> dict[str, Any]:
    """Return the fields of a part of a cell under their keys; none where it has no such part."""
    fields = {} if part is None else msgspec.structs.asdict(part)
    return {
        _KEYS.get(f"{prefix}{name}", f"{prefix}{name}"): value
        for name, value in fields.items()
        if name not in without
    }


_KEYS = {"workload.limit": "data.limit", "path": "script"}
"""Keys that are not named as the field of the workload or the script that they set."""


def _cluster_values(plan: Plan) -> list[tuple[str, Any]]:
    """Return what is set of the cluster; the container's keys only with an image."""
    values: dict[str, Any] = msgspec.to_builtins(plan.cluster)
    container = values.pop("container")
    if container["image"] is not None:
        values |= {f"container.{name}": value for name, value in container.items()}
    return [(name, value) for name, value in values.items() if value]


_ABSENT = "–"


def _text(value: Any) -> str:
    """Return a value as it is written in a config, not as Python writes it."""
    if value is None:
        return _ABSENT
    if isinstance(value, bool | dict | list | tuple):
        return msgspec.json.encode(value).decode().replace('"', "").replace(",", ", ")
    return str(value)


_DERIVED = {
    "study": "derived from workload, cluster and GPU type",
    "nodes": "derived from gpus and the cluster's GPUs per node",
    "device": "derived: the cluster's",
    "gpu_type": "derived: the cluster's default",
    "loader_workers": "derived by kind of device",
    "repeat": "derived from repeats",
    "data.root": "derived: the cluster's, else $SCRATCH/data, else ./data",
    "workload.images": "derived: counted",
    "workload.code": "the source files of your functions, with their hashes",
    "workload.imported": "files that your functions import from other folders",
    "workload.data_sha256": "names, sizes and beginnings of the files in data.root",
}
"""Origins of keys that are derived unless they are given."""


def _origin(origins: Mapping[str, str], key: str) -> str:
    if key == "strategy":
        return f"{origins.get(key, 'conf/config.yaml')}; gpus=1 is single"
    if key in origins:
        return origins[key]
    group = key.partition(".")[0]
    if group in ("workload", "recipe") and key not in _DERIVED:
        return origins[f"{group}."]
    if key.startswith("cluster."):
        inner = f"{key}."
        parents = [origin for name, origin in origins.items() if name.startswith(inner)]
        return ", ".join([*parents, origins["cluster."]])
    return _DERIVED.get(key, "conf/config.yaml")
