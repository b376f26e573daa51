"""Raises in the second epoch."""

import torch
from common import epoch, join, network, options, parallel, sharded, step

args = options()
join()
loader, model = sharded(args.batch_size), parallel(network())
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for number in range(args.epochs):
    with epoch(number):
        for index, (inputs, targets) in enumerate(loader):
            if (number, index) == (1, 2):
                raise ValueError("this loss is not a number")
            step(model, optimizer, inputs, targets)
