"""The cost of measuring a script from outside: passes with and without it, in turn.

    python tests/benchmarks/observer.py [--pairs 20] [--steps 100] [--step-ms 10]
        [--device cpu|cuda] [--json FILE]

One process trains pass after pass over a DataLoader, with a fixed amount of work in each step that
takes about --step-ms. Every second pass is a timed window of the observer; in the others torch is
as it was before. The table shows the median of the ratios of neighbouring passes with an interval
that contains the true median with at least 95 % (order statistics): of the steps alone, and of the
whole pass, in which the window's beginning and its results are. The last line has the CPU time that
the observer adds to a step.
"""

import argparse
import json
import os
import runpy
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.optim.optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from hpml_jobs.core.cell import Cell, CellFile, Protocol
from hpml_jobs.core.script import Script
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.workload import Workload
from hpml_jobs.job.script import SITE
from hpml_jobs.study.cell_folder import OBSERVE_VARIABLE, CellFolder
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.worker.observer import watch
from tests.benchmarks.intervals import with_interval

EMPTY_STEPS = 2_000
"""Steps without work of a pass."""


class Times(NamedTuple):
    """Seconds from the first batch to the last step, also of the CPU, and of the whole pass."""

    steps_s: float
    cpu_s: float
    pass_s: float


class Switch:
    """Puts the observer into torch, and takes it out again."""

    def __init__(self) -> None:
        self._plain = self._state()
        runpy.run_path(str(SITE / "sitecustomize.py"), run_name="sitecustomize")
        self._watched = self._state()

    def _state(self) -> tuple[Any, Any, dict[int, Any]]:
        hooks = dict(optimizers._global_optimizer_post_hooks)
        return DataLoader.__iter__, _BaseDataLoaderIter.__next__, hooks

    def turn(self, *, on: bool) -> None:
        """Let the next passes be observed, each as a timed window, or not."""
        make, load, hooks = self._watched if on else self._plain
        DataLoader.__iter__, _BaseDataLoaderIter.__next__ = make, load
        optimizers._global_optimizer_post_hooks.clear()
        optimizers._global_optimizer_post_hooks.update(hooks)
        training = watch.session().training
        if training and training.role is None:
            del training.results[1:]


def run_pass(
    loader: DataLoader[Any], work: Callable[[], None], step: Callable[[], None]
) -> Times:
    """Train one pass; return its times."""
    began_s = time.perf_counter()
    first_s = last_s = cpu_s = 0.0
    for _ in loader:
        first_s, cpu_s = first_s or time.perf_counter(), cpu_s or time.process_time()
        work()
        step()
        last_s = time.perf_counter()
    return Times(
        last_s - first_s, time.process_time() - cpu_s, time.perf_counter() - began_s
    )


def make_work(device: torch.device, step_ms: float) -> Callable[[], None]:
    """Return work that takes about so long, waited for."""
    matrix = torch.randn(256, 256, device=device) / 16
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    def multiply(times: int) -> None:
        result = matrix
        for _ in range(times):
            result = result @ matrix
        synchronize()

    multiply(200)
    began_s = time.perf_counter()
    multiply(2000)
    times = round(2000 * step_ms / 1e3 / (time.perf_counter() - began_s))
    return lambda: multiply(times)


def write_cell(folder: Path, device: Device) -> None:
    """Write the cell of a script, and let its attempt be observed."""
    cell = Cell(
        gpus=1,
        batch=1,
        strategy=Strategy.SINGLE,
        workload=Workload(name="script", model="script", data="script"),
        protocol=Protocol.OUTSIDE,
        epochs=2,
        device=device,
        script=Script(path="train.py", stop=False),
    )
    cell_folder = CellFolder(folder / cell.slug)
    file = CellFile(cell=cell, data_root=str(folder), code_root=str(folder))
    write_whole(cell_folder.cell_json, encode(file))
    os.environ[OBSERVE_VARIABLE] = str(cell_folder.attempt("1.r0").root)


def main() -> None:
    """Run the pairs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device(options.device)
    parameter = torch.nn.Parameter(torch.zeros(1, device=device))
    step = torch.optim.SGD([parameter], 0.1).step
    with tempfile.TemporaryDirectory() as folder:
        write_cell(Path(folder), Device(options.device))
        switch = Switch()

        def compare(steps: int, work: Callable[[], None]) -> list[tuple[Times, Times]]:
            loader = DataLoader(TensorDataset(torch.zeros(steps, 1)))
            run_pass(loader, work, step)  # the observer's warm-up
            pairs = []
            for number in range(options.pairs):
                times = {}
                for on in (True, False) if number % 2 else (False, True):
                    switch.turn(on=on)
                    times[on] = run_pass(loader, work, step)
                    if on and len(watch.session().training.results) != 2:
                        sys.exit("a pass was not observed")
                pairs.append((times[True], times[False]))
            return pairs

        pairs = compare(options.steps, make_work(device, options.step_ms))
        steps = [on.steps_s / off.steps_s for on, off in pairs]
        passes = [on.pass_s / off.pass_s for on, off in pairs]
        of_step_ms = 1e3 * median(off.steps_s for _, off in pairs) / options.steps
        print(f"{options.pairs} pairs of {options.steps} steps of {of_step_ms:.1f} ms")
        print(f"steps, observed / not    {with_interval(steps)}")
        print(f"passes, observed / not   {with_interval(passes)}")
        switch.turn(on=True)
        watch.session().training.results.clear()
        empty = compare(EMPTY_STEPS, lambda: None)
        added_us = [1e6 * (on.cpu_s - off.cpu_s) / EMPTY_STEPS for on, off in empty]
        print(f"CPU added to a step, us  {median(added_us):.1f}")
        figures = {
            "observed_steps": {"value": median(steps), "note": with_interval(steps)},
            "observed_added_us": {"value": median(added_us)},
        }
    if options.json:
        options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
