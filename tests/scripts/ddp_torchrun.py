"""DDP as in tutorials: a look at a batch before each epoch, a test after it."""

import torch
from common import epoch, join, network, options, parallel, samples, sharded, step
from torch import distributed as dist
from torch.utils.data import DataLoader

args = options()
join()
loader, test_loader = sharded(args.batch_size), DataLoader(samples(256), 64)
model = parallel(network())
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for number in range(args.epochs):
    print("batch", len(next(iter(loader))[0]))
    if dist.is_initialized():
        loader.sampler.set_epoch(number)
    with epoch(number):
        for inputs, targets in loader:
            step(model, optimizer, inputs, targets)
    with torch.no_grad():
        for inputs, _ in test_loader:
            model(inputs)
if dist.is_initialized():
    dist.destroy_process_group()
