"""Leaves by os._exit after training, so that nothing registered at exit runs."""

import os

import torch
from common import epoch, join, network, options, parallel, sharded, step

args = options()
join()
loader, model = sharded(args.batch_size), parallel(network())
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for number in range(args.epochs):
    with epoch(number):
        for inputs, targets in loader:
            step(model, optimizer, inputs, targets)
os._exit(0)
