"""FSDP: a group of shards for each layer, in torch's version 1 or 2, and the norm of gradients."""

import torch
from common import epoch, join, network, options, sharded
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

args = options(version=2)
join()
loader, model = sharded(args.batch_size), network()
if dist.is_initialized() and args.version == 1:
    policy = ModuleWrapPolicy({nn.Linear})
    model = FullyShardedDataParallel(
        model, auto_wrap_policy=policy, device_id=torch.device("cpu")
    )
elif dist.is_initialized():
    for layer in model[::2]:
        fully_shard(layer)
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for number in range(args.epochs):
    with epoch(number):
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            if args.version == 2:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
