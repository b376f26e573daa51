"""As Accelerate prepares them: a loader that is one batch ahead, an optimizer in a wrapper."""

import torch
from common import epoch, join, network, options, parallel, sharded, step
from torch import distributed as dist
from torch.utils.data import DataLoader


class AheadLoader(DataLoader):
    """Yields a batch when the next one has been fetched, so it knows which is the last."""

    def __iter__(self):
        batches = super().__iter__()
        current = next(batches)
        for following in batches:
            yield current
            current = following
        yield current


class WrappedOptimizer(torch.optim.Optimizer):
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        self.optimizer.step()


args = options()
join()
plain = sharded(args.batch_size)
loader = AheadLoader(plain.dataset, args.batch_size, sampler=plain.sampler)
model = parallel(network())
optimizer = WrappedOptimizer(torch.optim.AdamW(model.parameters()))
for number in range(args.epochs):
    with epoch(number):
        for inputs, targets in loader:
            step(model, optimizer, inputs, targets)
if dist.is_initialized():
    dist.destroy_process_group()
