"""A small language model of the user, without a test set, from submission to report."""

import csv
import json

import pytest

CODE = """
import torch
from torch import nn

class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, 32), nn.Embedding(64, 32)
        self.block = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 256)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        embedded = self.tokens(tokens) + self.places.weight
        return self.head(self.block(embedded, src_mask=mask, is_causal=True))

class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        start = torch.randint(256, (1,), generator=torch.Generator().manual_seed(index))
        tokens = (start + torch.arange(65)) % 256
        return tokens[:-1], tokens[1:]

def build():
    return GPT()

def dataset(train):
    return Tokens() if train else None

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())
"""

OWN = (
    *("workload=custom", "workload.name=gpt", "workload.model=mygpt:build"),
    *("workload.data=mygpt:dataset", "workload.loss=mygpt:loss", "cluster=local", "device=cpu"),
    *("workload.unit=tokens", "batch=8", "loader_workers=0", "protocol=lab", "study=gpt"),
)


def test_sequences_without_test_set_are_trained_and_collected(program):
    (program.folder / "mygpt.py").write_text(CODE)
    program.ok(*OWN, "gpus=1", "epochs=3", "evaluate=true")
    shown = program.ok("collect", "gpt")
    assert "mygpt:dataset, 160 samples of 64 tokens per epoch" in shown
    assert "tokens/s" in shown
    assert "images" not in shown
    cells = json.loads(program.ok("record", "gpt", "--json"))["cells"]
    (numbers,) = [cell["numbers"] for cell in cells]
    assert numbers["accuracy"] is None
    assert numbers["units_per_s"] == pytest.approx(160 * 64 / numbers["epoch_s"])
    report = program.folder / "outputs" / "gpt" / "report"
    with (report / "table4.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["train_accuracy"], row["test_accuracy"]) for row in rows] == [("", "")]
    assert all(0 < float(row["train_loss"]) < 6 for row in rows)
    for name in ("tables.md", "tables.tex", "tables.json", "cells.csv"):
        assert (report / name).stat().st_size
    with (report / "cells.csv").open() as file:
        assert {row["workload_code"].partition(":")[0] for row in csv.DictReader(file)} == {
            "mygpt.py"
        }
