"""A stream of samples without an end: the loader is iterated once, and training stops by number."""

import itertools

import torch
from common import join, network, options, parallel, samples, step
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        return itertools.cycle(samples(512))


args = options(iterations=300)
join()
loader = DataLoader(Stream(), args.batch_size)
model = parallel(network())
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for iteration, (inputs, targets) in enumerate(loader):
    if iteration == args.iterations:
        break
    step(model, optimizer, inputs, targets)
