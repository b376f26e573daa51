"""DDP of tasks that srun starts: rank, GPU and port follow from SLURM's variables."""

import os

import torch
from common import epoch, network, options, parallel, sharded, step
from torch import distributed as dist


def main():
    args = options()
    rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["WORLD_SIZE"])
    print(f"rank {rank} of {size}, GPU {rank % int(os.environ['SLURM_GPUS_ON_NODE'])}")
    os.environ["MASTER_PORT"] = str(12_000 + int(os.environ["SLURM_JOBID"]) % 10_000)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    loader = sharded(
        args.batch_size, num_workers=int(os.environ["SLURM_CPUS_PER_TASK"])
    )
    model = parallel(network())
    optimizer = torch.optim.Adadelta(model.parameters())
    for number in range(args.epochs):
        with epoch(number):
            for inputs, targets in loader:
                step(model, optimizer, inputs, targets)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
