"""A process per GPU, or per CPU: DDP or FSDP2. It writes the seconds of its epochs to --times."""

import json
import os
import time
from pathlib import Path

import torch
from common import network, options, samples
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

args = options(parallel="ddp", number=2048, times="")
on_gpu = torch.cuda.is_available()
place = (
    torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    if on_gpu
    else torch.device("cpu")
)
if on_gpu:
    torch.cuda.set_device(place)
dist.init_process_group("nccl" if on_gpu else "gloo")
data = samples(args.number)
loader = DataLoader(
    data, args.batch_size, sampler=DistributedSampler(data), pin_memory=on_gpu
)
model = network().to(place)
if args.parallel == "ddp":
    model = nn.parallel.DistributedDataParallel(model)
else:
    for layer in model[::2]:
        fully_shard(layer)
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
seconds = []
for _ in range(args.epochs):
    torch.accelerator.synchronize() if on_gpu else None
    began_s = time.perf_counter()
    for batch in loader:
        inputs, targets = (part.to(place, non_blocking=True) for part in batch)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    torch.accelerator.synchronize() if on_gpu else None
    seconds.append(time.perf_counter() - began_s)
    if args.times and dist.get_rank() == 0:
        Path(args.times).write_text(json.dumps(seconds))
