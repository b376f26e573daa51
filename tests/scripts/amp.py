"""Mixed precision with a GradScaler, which skips the first steps, and clipped gradients."""

import torch
from common import epoch, join, network, options, parallel, sharded
from torch import nn

args = options()
join()
loader, model = sharded(args.batch_size), parallel(network())
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60)
for number in range(args.epochs):
    with epoch(number):
        for inputs, targets in loader:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(inputs), targets)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
