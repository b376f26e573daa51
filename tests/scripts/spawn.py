"""One command that starts a process per GPU itself, with mp.spawn."""

import os

import torch
from common import epoch, join, network, options, parallel, sharded, step
from torch import distributed as dist
from torch import multiprocessing as mp


def train(rank, args, port):
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= place | {"RANK": str(rank), "WORLD_SIZE": str(args.gpus)}
    join()
    loader, model = sharded(args.batch_size), parallel(network())
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for number in range(args.epochs):
        with epoch(number):
            for inputs, targets in loader:
                step(model, optimizer, inputs, targets)
    dist.destroy_process_group()


if __name__ == "__main__":
    args = options(gpus=1)
    port = dist.TCPStore("127.0.0.1", 0, is_master=True).port
    mp.spawn(train, (args, port), nprocs=args.gpus)
