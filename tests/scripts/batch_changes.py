"""The batch doubles in every epoch."""

import torch
from common import epoch, join, network, options, parallel, sharded, step

args = options()
join()
model = parallel(network())
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for number in range(args.epochs):
    loader = sharded(args.batch_size * 2**number)
    with epoch(number):
        for inputs, targets in loader:
            step(model, optimizer, inputs, targets)
