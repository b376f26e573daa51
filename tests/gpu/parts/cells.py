"""Cells of every strategy on one GPU, through the job's wrapper."""

from collections.abc import Iterator
from typing import Any

from hpml_jobs.core.check_result import Level
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.results.checks.study import check_record
from tests.gpu.bench import Bench, CellRun
from tests.gpu.catalog import CELLS
from tests.gpu.figures import Figure, left_out

SETTINGS: dict[str, dict[str, Any]] = {
    "single": {},
    "single_b32": {"batch": 32},
    "single_b512": {"batch": 512, "loader_workers": 8},
    **{name.value: {"strategy": name} for name in Strategy if name.under_torchrun},
    "dp": {"strategy": Strategy.DP},
}
"""The settings of each cell of the catalog."""

TRACED = ("single", "ddp")
"""Cells whose traces are kept."""


def measure(bench: Bench) -> Iterator[Figure]:
    """Run every cell."""
    for key in CELLS:
        settings = SETTINGS[key]
        if bench.device is Device.CPU and settings.get("strategy") is Strategy.DP:
            yield Figure(key=f"{key}_ok", value=None, note="dp needs a GPU")
            continue
        workload = bench.workload_of(bench.sizes.cell_epoch_images)
        run = bench.run_cell(key, workload=workload, trace=key in TRACED, **settings)
        yield from figures_of(key, run)
    yield from _refused(bench)


def figures_of(key: str, run: CellRun) -> Iterator[Figure]:
    """Return the figures of one cell."""
    yield Figure(
        key=f"{key}_ok", value=float(run.is_ok), note="" if run.is_ok else run.reason
    )
    record = run.record
    if record is None or not run.is_ok:
        return
    if record.samples:
        yield Figure(key=f"{key}_rate", value=record.samples / record.epoch_s)
    instrumented = record.ranks[0].epoch(Role.INSTRUMENTED)
    if instrumented is not None:
        ratio = instrumented.epoch_s / record.ranks[0].timed.epoch_s
        yield Figure(key=f"{key}_overhead", value=ratio)
        closure = instrumented.closure
        value = None if closure is None else 100 * closure
        yield Figure(key=f"{key}_closure", value=value)
    for word, level in (("failed", Level.FAIL), ("warned", Level.WARN)):
        names = checks_of(record, level)
        yield Figure(
            key=f"{key}_{word}", value=float(len(names)), note=", ".join(names)
        )


def checks_of(record: Record, level: Level) -> list[str]:
    """Return the names of the checks that gave this result."""
    return [result.check for result in check_record(record) if result.level is level]


def _refused(bench: Bench) -> Iterator[Figure]:
    """Ask for two GPUs on a machine with one."""
    if bench.has_two_gpus:
        yield from left_out(["refused"], "two GPUs are here")
        return
    run = bench.run_cell("refused", gpus=2, strategy=Strategy.DDP, limit_s=60)
    refused = not run.is_ok and "but torch sees 1" in run.reason
    yield Figure(key="refused", value=float(refused), note=run.reason)
