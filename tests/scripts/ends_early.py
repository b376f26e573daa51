"""Trains one epoch."""

import torch
from common import epoch, join, network, options, parallel, sharded, step

args = options()
join()
loader, model = sharded(args.batch_size), parallel(network())
optimizer = torch.optim.SGD(model.parameters(), 0.01)
with epoch(0):
    for inputs, targets in loader:
        step(model, optimizer, inputs, targets)
