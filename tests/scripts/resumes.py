"""Writes checkpoint.pt where it is started, and resumes from it: a second run trains nothing."""

from pathlib import Path

import torch
from common import epoch, join, network, options, parallel, sharded, step

args = options()
join()
loader, model, file = (
    sharded(args.batch_size),
    parallel(network()),
    Path("checkpoint.pt"),
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
done = torch.load(file)["epoch"] + 1 if file.exists() else 0
for number in range(done, args.epochs):
    with epoch(number):
        for inputs, targets in loader:
            step(model, optimizer, inputs, targets)
    torch.save({"epoch": number, "model": model.state_dict()}, file)
