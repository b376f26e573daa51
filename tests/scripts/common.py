"""What the scripts share: options, samples, a model, a step, and a clock that prints epochs."""

import argparse
import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def options(**more):
    parser = argparse.ArgumentParser()
    for name, default in {"batch-size": 32, "epochs": 4, **more}.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser.parse_args()


def join():
    if "RANK" in os.environ:
        dist.init_process_group("gloo")


def samples(number=2048):
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(
        torch.randn(number, 256, generator=generator), torch.arange(number) % 10
    )


def sharded(batch_size, **more):
    data = samples()
    sampler = DistributedSampler(data) if dist.is_initialized() else None
    return DataLoader(
        data, batch_size, shuffle=sampler is None, sampler=sampler, **more
    )


def network(features=256, outputs=10):
    layers = [nn.Linear(features, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, outputs))


def parallel(model):
    return (
        nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model
    )


def step(model, optimizer, inputs, targets):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()


@contextmanager
def epoch(number):
    started = time.perf_counter()
    yield
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(f"epoch {number} {time.perf_counter() - started:.6f}", flush=True)
