"""The commands of a user on a machine without SLURM: submission, tables, doctor."""

import sys
from collections.abc import Iterator

from hpml_jobs.core.cell import Outcome
from hpml_jobs.study.cell_folder import CellFolder
from tests.gpu.bench import Bench, Finished
from tests.gpu.figures import Figure

STUDY = "card"


def measure(bench: Bench) -> Iterator[Figure]:
    """Run a study of two cells, its tables, and doctor."""
    words = ["gpus=1", "batch=32,512", "probe_s=2"]
    images = bench.sizes.cell_epoch_images
    submitted, folders = run_study(bench, STUDY, words, images=images, limit_s=240)
    yield from _figures("submit", submitted)
    outputs = ["--outputs", str(bench.folder / "outputs")]
    yield from _figures("collect", _command(bench, ["collect", STUDY, *outputs], 60))
    ends = [
        end.outcome.value if (end := cell.last_end()) else "no end" for cell in folders
    ]
    yield Figure(key="cells", value=float(ends.count(Outcome.OK)), note=", ".join(ends))
    yield from _figures(
        "doctor", _command(bench, ["doctor", "--gpus", "1", *_place(bench)], 180)
    )


def run_study(
    bench: Bench, name: str, words: list[str], *, images: int, limit_s: float
) -> tuple[Finished, list[CellFolder]]:
    """Run a study of random images on this machine; return how it ended, and its cells."""
    workload = [
        "workload=synthetic",
        f"workload.images={images}",
        "workload.parameters=null",
    ]
    workload += [f"workload.model={bench.sizes.workload.model}"]
    finished = _command(
        bench, ["-m", *words, *workload, f"study={name}", *_place(bench)], limit_s
    )
    cells = (bench.folder / "outputs" / name / "cells").glob("*")
    return finished, [CellFolder(path) for path in cells]


def _place(bench: Bench) -> list[str]:
    outputs = bench.folder / "outputs"
    return ["cluster=local", f"device={bench.device.value}", f"outputs={outputs}"]


def _command(bench: Bench, words: list[str], limit_s: float) -> Finished:
    return bench.command([sys.executable, "-m", "hpml_jobs", *words], {}, limit_s)


def _figures(key: str, finished: Finished) -> Iterator[Figure]:
    note = finished.last_line if finished.code else ""
    yield Figure(key=f"{key}_code", value=float(finished.code), note=note)
    yield Figure(key=f"{key}_s", value=finished.seconds)
