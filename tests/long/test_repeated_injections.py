"""Ten launches of each injection give the same Table 2 and the same exchange."""

import pytest

from hpml_jobs.core.record import Record
from tests.unit.worker.injections import (
    CROSSED,
    EVERYWHERE,
    LATE_BUCKET,
    LATE_RANK,
    SLOW_LOADER,
    THREE_LATE,
    InjectedStudy,
    farthest,
    table2,
)

pytestmark = pytest.mark.long

LAUNCHES = 10
LIMIT = 0.10
"""Largest distance of Compute, Comm or exchange from the median of the launches, of the epoch."""


@pytest.mark.parametrize(
    ("name", "injected", "settings"),
    [
        ("late-rank", LATE_RANK, {"gpus": "2"}),
        ("slow-loader", SLOW_LOADER, {"gpus": "2"}),
        ("late-bucket", LATE_BUCKET, {"gpus": "2"}),
        ("crossed", CROSSED, {"gpus": "2"}),
        ("three-late", THREE_LATE, {"gpus": "3"}),
        (
            "everywhere",
            EVERYWHERE,
            {"gpus": "2", "strategy": "ddp,allreduce,allreduce_flat"},
        ),
    ],
)
def test_ten_launches_give_the_same_table_2(name, injected, settings, program, capsys):
    study = InjectedStudy(program, name, injected, repeats=str(LAUNCHES), **settings)
    launches: dict[tuple[str, int], list[Record]] = {}
    for record in study.records:
        launches.setdefault((record.cell.strategy.value, record.cell.gpus), []).append(
            record
        )
    too_far = []
    for (strategy, gpus), records in sorted(launches.items()):
        assert len(records) == LAUNCHES
        runs = sorted(map(table2, records))
        with capsys.disabled():
            print(f"\n{name}: {strategy}, {gpus} processes, shares of the epoch")
            print("  Compute", " ".join(f"{100 * run.compute:.1f}" for run in runs))
            print("  Comm   ", " ".join(f"{100 * run.comm:.1f}" for run in runs))
            print("  exchange", " ".join(f"{100 * run.exchange:.1f}" for run in runs))
            shown = [record.least_waiting.rank for record in records]
            print(
                "  rank   ",
                *shown,
                "farthest",
                *(f"{100 * x:.1f} %" for x in farthest(runs)),
            )
        if max(farthest(runs)) > LIMIT:
            too_far.append((strategy, gpus))
    assert not too_far
