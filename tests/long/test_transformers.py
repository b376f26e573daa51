"""gpt_nano is trained to its bits per byte, under every strategy and training path."""

from math import log

import pytest

from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import decode
from hpml_jobs.report import training
from tests.conftest import Program
from tests.patience import timeout

pytestmark = pytest.mark.long

NANO = (
    "cluster=local",
    "device=cpu",
    "workload=gpt_nano",
    "loader_workers=0",
    "protocol=lab",
)


def records_of(program: Program, study: str, *words: str) -> list[Record]:
    program.ok("-m", *NANO, f"study={study}", *words, timeout_s=timeout(600))
    files = sorted((program.folder / "outputs" / study / "cells").glob("*/record.json"))
    return [decode(file.read_bytes(), str(file)) for file in files]


def test_gpt_nano_is_a_bit_per_byte_below_the_unigram_entropy(program):
    """On 1 MB of text; ranks on 2 processes test the same replica."""
    records = records_of(program, "text", "gpus=1,2", "batch=16")
    assert [record.cell.gpus for record in records] == [2, 1]
    for record in records:
        text = record.facts.text
        assert text.train_bytes >= 1_000_000
        tested = training.test_bits_per_byte(record)
        assert tested < text.unigram_bits_per_byte - 1
        assert len({rank.test_loss for rank in record.ranks}) == 1
        first, *_, last = record.ranks[0].epochs
        assert last.loss < first.loss < log(256)


@pytest.mark.parametrize(
    "path",
    [
        (),
        ("precision=bf16",),
        ("compile=true",),
        ("compile=true", "precision=bf16", "loader=device"),
    ],
    ids=" ".join,
)
def test_strategies_learn_alike_on_every_path(program, path):
    """All draw the same 512 windows in the same order; fsdp cannot be compiled."""
    words = ("gpus=2", "global_batch=32", "data.limit=512", *path)
    strategies = [
        "ddp",
        "allreduce",
        "zero1",
        *([] if "compile=true" in path else ["fsdp"]),
    ]
    records = records_of(program, "paths", *words, f"strategy={','.join(strategies)}")
    records += records_of(
        program, "accumulated", *words, "accumulate=2", "strategy=ddp"
    )
    assert len(records) == len(strategies) + 1
    losses = [record.loss for record in records]
    assert max(losses) - min(losses) < 0.02 * max(losses)
    assert max(losses) < 5  # bytes at random have 5.5 nats
