"""A trainer with callbacks: batches by next(), a progress file, and a checkpoint of every epoch."""

import time
from pathlib import Path

import torch
from common import join, network, options, parallel, sharded, step
from torch import distributed as dist


class Callback:
    def on_epoch_start(self, trainer): ...
    def on_epoch_end(self, trainer): ...


class Clock(Callback):
    def on_epoch_start(self, trainer):
        self.started = time.perf_counter()

    def on_epoch_end(self, trainer):
        if trainer.is_first:
            seconds = time.perf_counter() - self.started
            print(f"epoch {trainer.number} {seconds:.6f}", flush=True)


class Checkpoint(Callback):
    def __init__(self, folder):
        self.folder = Path(folder)

    def on_epoch_end(self, trainer):
        if trainer.is_first:
            torch.save(trainer.model.state_dict(), self.folder / f"{trainer.number}.pt")


class Trainer:
    def __init__(self, model, *callbacks):
        self.model, self.callbacks = parallel(model), callbacks
        self.is_first = not dist.is_initialized() or dist.get_rank() == 0

    def call(self, name):
        for callback in self.callbacks:
            getattr(callback, name)(self)

    def fit(self, loader, epochs):
        optimizer = torch.optim.SGD(self.model.parameters(), 0.01)
        for self.number in range(epochs):
            self.call("on_epoch_start")
            batches = iter(loader)
            for _ in range(len(loader)):
                step(self.model, optimizer, *next(batches))
            self.call("on_epoch_end")


args = options(out=".")
join()
Trainer(network(), Clock(), Checkpoint(args.out)).fit(
    sharded(args.batch_size), args.epochs
)
