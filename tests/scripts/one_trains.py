"""Only rank 0 trains; the others wait for it at the end."""

import torch
from common import epoch, join, network, options, samples, step
from torch import distributed as dist
from torch.utils.data import DataLoader

args = options()
join()
if not dist.is_initialized() or dist.get_rank() == 0:
    loader, model = DataLoader(samples(), args.batch_size), network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for number in range(args.epochs):
        with epoch(number):
            for inputs, targets in loader:
                step(model, optimizer, inputs, targets)
if dist.is_initialized():
    dist.barrier()
