"""Studies whose processes sleep where a test says, and the truth of their sleeps."""

import json
import shutil
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from hpml_jobs.core.record import Record
from hpml_jobs.study.study import Study
from tests.conftest import Program

USER_CODE = Path(__file__).with_name("injected.py")

EVERYWHERE = {"item": 0.5, "forward": 4, "loss": 2, "backward": 5, "optimizer": 3, "all_reduce": 6}
"""Milliseconds, in every phase at once, on all ranks."""

# About 100 ms per iteration: on a busy machine a rank waits up to 20 ms for a CPU at each exchange.
LATE_RANK = {"1": {"forward": 100}}
SLOW_LOADER = {"1": {"item": 12}}
CROSSED = {"0": {"item": 12}, "1": {"forward": 96}}
"""Rank 0 loads longer, then rank 1 computes as much longer: ddp's broadcast comes between."""
THREE_LATE = {"0": {"item": 12}, "1": {"forward": 96}, "2": {"backward": 96}}
LATE_BUCKET = {"1": {"backward": 100}}


class InjectedStudy:
    """A study on this machine; `injected` are the sleeps in milliseconds."""

    def __init__(
        self, program: Program, name: str, injected: dict[str, Any], *words: str, **settings: str
    ) -> None:
        shutil.copy(USER_CODE, program.folder / USER_CODE.name)
        program.environment["INJECTED"] = json.dumps(injected)
        custom = ("workload=custom", "workload.model=injected:build", "workload.loss=injected:loss")
        here = (
            "cluster=local",
            "device=cpu",
            "batch=8",
            "loader_workers=0",
            "probe_s=0.5",
            "try_batch=false",
        )
        options = [f"{key}={value}" for key, value in settings.items()]
        words = (*words, *custom, "workload.data=injected:dataset", f"study={name}", *here)
        program.ok("-m", *words, *options, timeout_s=3600)
        self.program, self.name = program, name
        self.study = Study(program.folder / "outputs" / name)

    @property
    def records(self) -> list[Record]:
        records = [cell.read_record() for cell in self.study.cells()]
        return [record for record in records if record is not None]

    def slept_s(self, record: Record, rank: int) -> Counter[str]:
        """The measured sleeps of a rank in the instrumented epoch, the third of training."""
        path = self.program.folder / "truth" / f"{record.slug}.rank{rank}.jsonl"
        lines = path.read_text().splitlines()[2 * record.iterations : 3 * record.iterations]
        assert len(lines) == record.iterations
        slept: Counter[str] = Counter()
        for line in lines:
            slept.update(json.loads(line))
        return slept

    def checks(self) -> dict[str, dict[str, tuple[str, str]]]:
        """Level and reason of each check by cell, as the command `record` shows them."""
        cells = json.loads(self.program.ok("record", self.name, "--json"))["cells"]
        return {
            cell["slug"]: {
                check["check"]: (check["level"], check["reason"]) for check in cell["checks"]
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
        *(max(abs(x - median(column)) for x in column) for column in zip(*runs, strict=True))
    )
