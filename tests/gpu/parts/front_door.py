"""The commands of a user on a machine without SLURM: submission, tables, doctor."""

import sys
from collections.abc import Iterator

from hpml_jobs.core.cell import Outcome
from hpml_jobs.study.cell_folder import CellFolder
from tests.gpu.bench import Bench
from tests.gpu.figures import Figure

STUDY = "card"


def measure(bench: Bench) -> Iterator[Figure]:
    """Run a study of two cells, its tables, and doctor."""
    outputs = bench.folder / "outputs"
    place = ["cluster=local", f"device={bench.device.value}", f"outputs={outputs}"]
    study = ["-m", "gpus=1", "batch=32,512", "workload=synthetic", "probe_s=2", f"study={STUDY}"]
    study += [f"workload.images={bench.sizes.cell_epoch_images}", "workload.parameters=null"]
    study += [f"workload.model={bench.sizes.workload.model}"]
    yield from _figures(bench, "submit", [*study, *place], 240)
    yield from _figures(bench, "collect", ["collect", STUDY, "--outputs", str(outputs)], 60)
    folders = [CellFolder(path) for path in (outputs / STUDY / "cells").glob("*")]
    ends = [end.outcome.value if (end := cell.last_end()) else "no end" for cell in folders]
    yield Figure(key="cells", value=float(ends.count(Outcome.OK)), note=", ".join(ends))
    yield from _figures(bench, "doctor", ["doctor", "--gpus", "1", *place], 180)


def _figures(bench: Bench, key: str, words: list[str], limit_s: float) -> Iterator[Figure]:
    finished = bench.command([sys.executable, "-m", "hpml_jobs", *words], {}, limit_s)
    last_line = finished.output.strip().rpartition("\n")[2][:200]
    note = last_line if finished.code else ""
    yield Figure(key=f"{key}_code", value=float(finished.code), note=note)
    yield Figure(key=f"{key}_s", value=finished.seconds)
