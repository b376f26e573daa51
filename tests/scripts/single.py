"""One process: a collate function, a worker that stays, a learning rate that follows the loss."""

import torch
from common import epoch, network, options, samples, step
from torch.utils.data import DataLoader, default_collate


def flat(items):
    inputs, targets = default_collate(items)
    return inputs.flatten(1), targets


if __name__ == "__main__":
    args = options()
    loader = DataLoader(
        samples(),
        args.batch_size,
        collate_fn=flat,
        num_workers=1,
        persistent_workers=True,
    )
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    for number in range(args.epochs):
        with epoch(number):
            for inputs, targets in loader:
                step(model, optimizer, inputs, targets)
        schedule.step(1.0)
