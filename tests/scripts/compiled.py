"""torchvision's ResNet-18, compiled, in bf16, with pinned batches of workers; on a CPU smaller."""

import json
import time
from pathlib import Path

import torch
from common import options
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import resnet18

args = options(images=2048, times="")

if __name__ == "__main__":
    on_gpu = torch.cuda.is_available()
    place = torch.device("cuda" if on_gpu else "cpu")
    images = torch.randn(args.images, 3, 32, 32)
    data = TensorDataset(images, torch.arange(args.images) % 10)
    loader = DataLoader(
        data, args.batch_size, shuffle=True, num_workers=2, pin_memory=on_gpu
    )
    small = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))
    model = torch.compile(resnet18(num_classes=10).to(place)) if on_gpu else small
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    seconds = []
    for _ in range(args.epochs):
        torch.accelerator.synchronize() if on_gpu else None
        began_s = time.perf_counter()
        for batch in loader:
            inputs, targets = (part.to(place, non_blocking=True) for part in batch)
            optimizer.zero_grad()
            with torch.autocast(place.type, torch.bfloat16):
                loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
        torch.accelerator.synchronize() if on_gpu else None
        seconds.append(time.perf_counter() - began_s)
        if args.times:
            Path(args.times).write_text(json.dumps(seconds))
