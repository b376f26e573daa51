"""Images/s of a bare training loop on data in the device's memory: the ceiling of any loader.

    python tests/benchmarks/ceilings.py [--device cpu|cuda] [--batches 128 512]
        [--model resnet18_cifar] [--modes fp32 tf32 "tf32 nhwc" "bf16 nhwc" "bf16 nhwc compiled"]
        [--iterations 60] [--json FILE]

A mode is a list of words: fp32, tf32 or bf16; nhwc (channels_last); compiled (torch.compile, each
batch with a graph of its own, as in a cell). The loop is plain PyTorch: forward, backward, a step
of SGD with momentum. Warm-up, in which cuDNN searches its algorithms and the compiler compiles, is
not in the time.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from hpml_jobs.core.strategies import Device
from hpml_jobs.core.training_path import CompileMode
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker import models
from hpml_jobs.worker.instruments.timing import synchronize
from hpml_jobs.worker.path_steps import compiled

MODES = ("fp32", "tf32", "tf32 nhwc", "bf16 nhwc", "bf16 nhwc compiled")
WARM_UP = 12
"""Iterations before the timed ones."""


def images_per_s(mode: str, batch: int, options: argparse.Namespace) -> float:
    """Return the images per second of one mode and batch."""
    words, device = set(mode.split()), torch.device(options.device)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = (
        "fp32" not in words
    )
    layout = torch.channels_last if "nhwc" in words else torch.contiguous_format
    workload = Workload(
        name=options.model, model=options.model, data="synthetic", images=batch
    )
    model: Any = models.build(workload).to(device).to(memory_format=layout)
    optimizer = torch.optim.SGD(
        model.parameters(), 0.01, momentum=0.9, weight_decay=5e-4
    )
    mode_of_compile = CompileMode.DEFAULT if "compiled" in words else None
    forward = compiled(model, mode_of_compile)
    shape = (batch, 3, workload.image_size, workload.image_size)
    images = torch.randn(shape, device=device).to(memory_format=layout)
    targets = torch.randint(workload.classes, (batch,), device=device)

    def train(iterations: int) -> None:
        for _ in range(iterations):
            with torch.autocast(device.type, torch.bfloat16, enabled="bf16" in words):
                loss = torch.nn.functional.cross_entropy(forward(images), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        synchronize((device,))

    train(min(WARM_UP, options.iterations))
    begin = time.perf_counter()
    train(options.iterations)
    return batch * options.iterations / (time.perf_counter() - begin)


def main() -> None:
    """Measure every mode and batch and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=[*Device], default="cpu")
    parser.add_argument("--batches", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--modes", nargs="+", default=list(MODES))
    parser.add_argument("--model", default="resnet18_cifar")
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)
    print(
        f"{options.model} on {options.device}, {options.iterations} iterations; images/s"
    )
    print(
        f"{'mode':20} "
        + " ".join(f"{f'batch {batch}':>12}" for batch in options.batches)
    )
    figures = {}
    for mode in options.modes:
        rates = {batch: images_per_s(mode, batch, options) for batch in options.batches}
        print(
            f"{mode:20} " + " ".join(f"{rate:12,.0f}" for rate in rates.values()),
            flush=True,
        )
        figures |= {f"{mode} {batch}": {"value": rate} for batch, rate in rates.items()}
    if options.json:
        options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
