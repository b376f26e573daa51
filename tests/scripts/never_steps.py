"""Evaluates only: gradients are computed, and no optimizer ever steps."""

from common import epoch, join, network, options, parallel, sharded

args = options()
join()
loader, model = sharded(args.batch_size), parallel(network())
for number in range(args.epochs):
    with epoch(number):
        for inputs, _ in loader:
            model(inputs).sum().backward()
