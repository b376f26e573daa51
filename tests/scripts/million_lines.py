"""Prints a line in every iteration, and many more besides."""

import torch
from common import epoch, join, network, options, parallel, sharded, step

args = options(lines=1_000_000)
join()
loader, model = sharded(args.batch_size), parallel(network())
optimizer = torch.optim.SGD(model.parameters(), 0.01)
per_step = args.lines // (args.epochs * len(loader))
for number in range(args.epochs):
    with epoch(number):
        for inputs, targets in loader:
            step(model, optimizer, inputs, targets)
            print(*range(per_step), sep="\n")
