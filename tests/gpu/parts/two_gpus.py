"""Two GPUs: what the exchange costs, what hides it, and equal parameters under three strategies."""

import json
from collections.abc import Iterator
from typing import Any

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Loader, Strategy
from tests.gpu.bench import ONE_GPU, Bench, CellRun
from tests.gpu.catalog import SAME_AS_DDP, keys_of
from tests.gpu.figures import Figure, left_out
from tests.gpu.two_ranks import torchrun

BATCH = 512
"""Large: the GPU, not the launches of the host, decides how long an iteration takes."""


def measure(bench: Bench) -> Iterator[Figure]:
    """Run cells on one GPU and on two, then train the same steps under each strategy."""
    if not bench.has_two_gpus:
        yield from left_out(keys_of("two_gpus"), ONE_GPU)
        return
    single = _run(bench, Strategy.SINGLE, gpus=1, protocol=Protocol.LAB, epochs=2)
    yield from _times(single, _run(bench, Strategy.DDP, gpus=2))
    yield from _parameters(bench)


def _run(bench: Bench, strategy: Strategy, *, gpus: int, **settings: Any) -> CellRun:
    """Run a cell with as many iterations on any number of GPUs."""
    return bench.run_cell(
        f"{strategy} {gpus}",
        strategy=strategy,
        gpus=gpus,
        batch=BATCH,
        workload=bench.workload_of(gpus * bench.sizes.cell_epoch_images),
        loader=Loader.DEVICE,
        loader_workers=0,
        **settings,
    )


def _times(single: CellRun, ddp: CellRun) -> Iterator[Figure]:
    """Compare the epoch without exchange with one GPU."""
    if single.record is None or ddp.record is None or not ddp.is_ok:
        yield Figure(key="alone", value=None, note=f"{single.reason}; {ddp.reason}")
        return
    unsynced = ddp.record.ranks[0].epoch(Role.UNSYNCED)
    if unsynced is not None:
        yield Figure(key="alone", value=unsynced.epoch_s / single.record.epoch_s)


def _parameters(bench: Bench) -> Iterator[Figure]:
    path = bench.folder / "parameters.json"
    words = torchrun(bench.device, path)
    finished = bench.command(words, {"OMP_NUM_THREADS": "1"}, 120)
    results = json.loads(path.read_text()) if path.exists() else {}
    note = "" if results else finished.last_line
    for name in SAME_AS_DDP:
        yield Figure(key=f"same_{name}", value=results.get(name), note=note)
