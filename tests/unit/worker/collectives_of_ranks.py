"""Collectives of the microbenchmark between real processes: run as ranks with -m.

Rank 0 prints the results of all ranks as JSON.
"""

import json

import msgspec
import torch
import torch.distributed as dist

from hpml_jobs.core.measurements import SWEPT
from hpml_jobs.core.processes import leave
from hpml_jobs.worker.microbenchmark import collective_times, prepare

CPU = (torch.device("cpu"),)


def run_microbenchmark() -> dict:
    """Return what each measurable collective gives on this rank, and its microbenchmark."""
    results = {}
    for kind in SWEPT:
        call = prepare(kind, 4 * 3 * dist.get_world_size(), CPU[0])
        call.inputs.copy_(torch.arange(call.inputs.numel()) + 100.0 * dist.get_rank())
        call.run()
        results[kind.value] = call.output.tolist()
    benchmark = collective_times(
        CPU, {kind: [4_000] for kind in SWEPT}, 60.0, sizes=(1_024,)
    )
    return {"results": results, "microbenchmark": msgspec.to_builtins(benchmark)}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    of_ranks = [None] * dist.get_world_size()
    dist.all_gather_object(of_ranks, run_microbenchmark())
    if dist.get_rank() == 0:
        print(json.dumps(of_ranks))  # noqa: T201  (the test reads it)
    dist.destroy_process_group()
    leave(0)  # as every rank of a cell does


if __name__ == "__main__":
    main()
