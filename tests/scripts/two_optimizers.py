"""Two optimizers, of which the second steps in every third iteration."""

import torch
from common import epoch, join, network, options, parallel, sharded, step

args = options()
join()
loader, first, second = (
    sharded(args.batch_size),
    parallel(network()),
    parallel(network()),
)
often = torch.optim.SGD(first.parameters(), 0.01)
seldom = torch.optim.SGD(second.parameters(), 0.01)
for number in range(args.epochs):
    with epoch(number):
        for index, (inputs, targets) in enumerate(loader):
            step(first, often, inputs, targets)
            if index % 3 == 2:
                step(second, seldom, inputs, targets)
