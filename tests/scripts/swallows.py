"""Goes on after every exception, SystemExit included."""

import torch
from common import epoch, join, network, options, parallel, sharded, step

args = options()
join()
loader, model = sharded(args.batch_size), parallel(network())
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for number in range(args.epochs):
    with epoch(number):
        for inputs, targets in loader:
            try:
                step(model, optimizer, inputs, targets)
            except BaseException as fault:
                print("goes on after", repr(fault), flush=True)
