"""Batches that are dictionaries of token windows, padded by a collate function."""

import torch
from common import epoch, join, options, parallel
from torch import distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

WIDTH, CONTEXT = 128, 32


def collate(windows):
    tokens = torch.stack(windows)
    return {
        "name": ["text"] * len(windows),
        "ids": tokens[:, :-1],
        "labels": tokens[:, 1:],
    }


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(100, WIDTH), nn.Linear(WIDTH, 100)
        self.body = nn.TransformerEncoderLayer(
            WIDTH, 4, 2 * WIDTH, 0.0, batch_first=True
        )

    def forward(self, ids, labels):
        outputs = self.head(self.body(self.tokens(ids)))
        return nn.functional.cross_entropy(outputs.flatten(0, 1), labels.flatten())


args = options()
join()
windows = list(torch.arange(512 * (CONTEXT + 1)).remainder(100).view(512, -1))
sampler = DistributedSampler(windows) if dist.is_initialized() else None
loader = DataLoader(windows, args.batch_size, sampler=sampler, collate_fn=collate)
model = parallel(Language())
optimizer = torch.optim.AdamW(model.parameters())
for number in range(args.epochs):
    with epoch(number):
        for batch in loader:
            optimizer.zero_grad()
            model(batch["ids"], batch["labels"]).backward()
            optimizer.step()
