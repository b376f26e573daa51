"""No loader and no epochs: get_batch, gradient accumulation, iterations."""

import time
from contextlib import nullcontext

import torch
from common import join, network, options, parallel, samples
from torch import distributed as dist
from torch import nn

inputs, targets = samples().tensors
args = options(iterations=100, accumulate=4)


def get_batch():
    index = torch.randint(len(inputs), (args.batch_size,))
    return inputs[index], targets[index]


join()
model = parallel(network())
optimizer = torch.optim.AdamW(model.parameters())
for iteration in range(args.iterations):
    started = time.perf_counter()
    for micro in range(args.accumulate):
        waits = dist.is_initialized() and micro < args.accumulate - 1
        with model.no_sync() if waits else nullcontext():
            images, labels = get_batch()
            nn.functional.cross_entropy(model(images), labels).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"iteration {iteration} {time.perf_counter() - started:.6f}", flush=True)
