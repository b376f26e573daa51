"""Studies whose processes sleep where a test says, and the truth of their sleeps."""

import json
import os
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

from hpml_jobs.core.record import Record
from hpml_jobs.report.report import make_report
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.figures import figures_of
from hpml_jobs.results.gap.causes import (
    EPOCH,
    Causes,
    GapCause,
    NoReplayError,
    Parts,
    parts,
    seconds_of,
)
from hpml_jobs.results.gap.parts import medians_of, replayed_parts
from hpml_jobs.results.gap.replay import replays
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Pair
from hpml_jobs.study.snapshot import read_snapshots
from hpml_jobs.study.study import Study
from tests.conftest import Program
from tests.patience import timeout

USER_CODE = Path(__file__).with_name("injected.py")

EVERYWHERE = {
    "item": 0.5,
    "forward": 4,
    "loss": 2,
    "backward": 5,
    "optimizer": 3,
    "all_reduce": 6,
}
"""Milliseconds, in every phase at once, on all ranks."""

# About 100 ms per iteration: on a busy machine a rank waits up to 20 ms for a CPU at each exchange.
LATE_RANK = {"1": {"forward": 100}}
SLOW_LOADER = {"1": {"item": 12}}
CROSSED = {"0": {"item": 12}, "1": {"forward": 96}}
"""Rank 0 loads longer, then rank 1 computes as much longer: ddp's broadcast comes between."""
THREE_LATE = {"0": {"item": 12}, "1": {"forward": 96}, "2": {"backward": 96}}
LATE_BUCKET = {"first_bucket_bytes": 2000, "1": {"backward": 100}}
"""The first layer is a bucket of its own, which rank 1 sends late."""


class InjectedStudy:
    """A study on this machine; `injected` are the sleeps in milliseconds."""

    def __init__(
        self,
        program: Program,
        name: str,
        injected: dict[str, Any],
        *words: str,
        **settings: str,
    ) -> None:
        shutil.copy(USER_CODE, program.folder / USER_CODE.name)
        program.environment["INJECTED"] = json.dumps(injected)
        custom = (
            "workload=custom",
            "workload.model=injected:build",
            "workload.loss=injected:loss",
        )
        here = {
            "cluster": "local",
            "device": "cpu",
            "batch": "8",
            "loader_workers": "0",
            "probe_s": "0.5",
        }
        options = [f"{key}={value}" for key, value in (here | settings).items()]
        words = (*words, *custom, "workload.data=injected:dataset", f"study={name}")
        program.ok("-m", *words, *options, timeout_s=timeout(200))
        self.program, self.name = program, name
        self.study = Study(program.folder / "outputs" / name)

    @property
    def records(self) -> list[Record]:
        records = [cell.read_record() for cell in self.study.cells()]
        return [record for record in records if record is not None]

    def slept_s(self, record: Record, rank: int) -> Counter[str]:
        """The measured sleeps of a rank in the instrumented epoch, the third of training."""
        path = self.program.folder / "truth" / f"{record.slug}.rank{rank}.jsonl"
        lines = path.read_text().splitlines()[
            2 * record.iterations : 3 * record.iterations
        ]
        assert len(lines) == record.iterations
        slept: Counter[str] = Counter()
        for line in lines:
            slept.update(json.loads(line))
        return slept

    def checks(self) -> dict[str, dict[str, tuple[str, str]]]:
        """Level and reason of each check by cell, as `status --json` shows them."""
        cells = json.loads(self.program.ok("status", self.name, "--json"))["cells"]
        return {
            cell["slug"]: {
                check["check"]: (check["level"], check["reason"])
                for check in cell["checks"]
            }
            for cell in cells
        }


class Table2(NamedTuple):
    """Both numbers of Table 2 of one run, and the exchange, as shares of its instrumented epoch."""

    compute: float
    comm: float
    exchange: float


def table2(record: Record) -> Table2:
    rank = record.least_waiting
    assert rank is not None
    assert rank.phases is not None
    epoch_s = max(r.epochs[2].epoch_s for r in record.ranks)
    times_s = rank.phases.compute_s, rank.phases.exposed_s, record.exchange_s
    return Table2(*(time_s / epoch_s for time_s in times_s))


def farthest(runs: list[Table2]) -> Table2:
    """The largest distance of a run from the median of the runs."""
    return Table2(
        *(
            max(abs(x - median(column)) for x in column)
            for column in zip(*runs, strict=True)
        )
    )


class Loss(NamedTuple):
    """A cause by which 2 processes lose speedup, and how the report names it.

    Injected are sleeps, and a shell command before Python. `keys` make another row of the report.
    """

    cause: GapCause
    words: str
    keys: dict[str, str]
    sleeps: dict[str, Any]
    command: str = "exec"

    def is_of(self, strategy: str, treatment: str) -> bool:
        """Return whether it was injected into the cells of a row."""
        return (strategy, bool(treatment)) == (
            self.keys["strategy"],
            "sync_buffers" in self.keys,
        )


ON_LINK = """exec unshare -n sh -c 'ip link set lo up mtu 1500 &&
    tc qdisc add dev lo root tbf rate {rate} burst 32kbit latency 400ms && exec "$0" "$@"'"""
"""A network namespace in which the processes share a link."""

NO_LOSS = {"width": 100, "forward": 40}
"""Sleeping for the time of an iteration: other programs on the machine do not change it."""

LOSSES = (
    Loss(GapCause.LOADER, "data wait", {"strategy": "ddp"}, {"item": 5}),
    Loss(
        GapCause.WAITING,
        "waiting for the slowest process (rank 1)",
        {"strategy": "allreduce_flat"},
        {"1": {"forward": 80}},
    ),
    Loss(
        GapCause.EXCHANGE,
        "communication",
        {"strategy": "allreduce"},
        {},
        ON_LINK.format(rate="10mbit"),
    ),
    Loss(
        GapCause.CPUS,
        "waiting for a free CPU",
        {"strategy": "ddp", "sync_buffers": "off"},
        {"forward": 0, "computing": 40},
        f"exec taskset -c {min(os.sched_getaffinity(0))}",
    ),
)
needs_link = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip", "tc", "taskset"))),
    reason="needs root, util-linux and iproute2, for a network namespace",
)


def python_after(folder: Path, command: str) -> Path:
    """Write a program that starts Python by a shell command."""
    python = folder / f"python-{len([*folder.glob('python-*')])}"
    python.write_text(f'#!/bin/sh\n{command} {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    return python


def lost_speedup(program: Program, repeats: int = 1) -> list[list[GapCause]]:
    """Measure 1 process, and 2 with each loss; return the largest part of the gap in each launch.

    The study is called `lost`.
    """
    common = {"repeats": str(repeats), "workload.lr": "0.001"}
    InjectedStudy(program, "lost", NO_LOSS, gpus="1", **common)
    for loss in LOSSES:
        python = python_after(program.folder, loss.command)
        parallel = Program(program.folder, program.environment, python)
        settings = common | loss.keys
        study = InjectedStudy(
            parallel, "lost", NO_LOSS | loss.sleeps, gpus="2", **settings
        )
    snapshots = read_snapshots(study.study.cells())
    (group,) = make_report("lost", snapshots, states=()).sources
    return [_causes(group, loss) for loss in LOSSES]


def _causes(group: ConditionGroup, loss: Loss) -> list[GapCause]:
    (row,) = (
        row
        for row in group.timed
        if row.gpus == 2 and loss.is_of(row.strategy, row.treatment)
    )
    assert row.pair is not None
    launches = [_parts(row.pair, result) for result in row.measured_cells]
    return [max(launch, key=launch.__getitem__) for launch in launches]


def _parts(pair: Pair, result: CellResult) -> Parts:
    """Return the parts of one launch, as the report makes them of all."""
    reference, row = pair
    alone = reference.measured_cells
    try:
        replayed = replays([result], alone, 2.0)
    except NoReplayError:  # of two processes on one CPU, for example
        assert result.record is not None
        times = seconds_of(row, figures_of(result.record))
        return parts(
            times,
            medians_of([seconds_of(reference, run) for run in reference.runs]),
            2.0,
        )
    alone_times = medians_of([_times(run, replayed.of_reference) for run in alone])
    return replayed_parts(_times(result, replayed.of_row), alone_times, 2.0)


def _times(
    result: CellResult, shares: Mapping[str, Mapping[Causes, float]]
) -> dict[Any, float]:
    assert result.record is not None
    return {EPOCH: result.record.epoch_s, **shares[result.slug]}
