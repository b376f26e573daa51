"""A record: what is believed, what is refused, and that a file is there whole or not at all."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from hpml_jobs.core.cell import Outcome, Protocol
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.validation import InvalidRecordError, decode
from hpml_jobs.study.files import encode, write_whole
from tests.unit.builders import a_cell, a_record

CELL = a_cell()


def change_record(**fields):
    """A valid record's JSON with its own fields changed."""
    return encode(a_record(CELL, **fields))


def change_rank(number, epoch=1, **fields):
    """A valid record's JSON with one epoch of one rank changed."""
    values = json.loads(encode(a_record(CELL)))
    values["ranks"][number]["epochs"][epoch] |= fields
    return encode(values)


def test_record_round_trips():
    assert decode(encode(a_record(CELL)), "record.json") == a_record(CELL)


def test_oom_record_needs_only_a_reason():
    oom = a_record(
        CELL, outcome=Outcome.OOM, reason="rank 1: out of memory", ranks=(), model=None
    )
    assert decode(encode(oom), "record.json").outcome is Outcome.OOM


def test_dp_record_has_one_process_for_all_gpus():
    dp = a_record(a_cell(strategy=Strategy.DP))
    assert decode(encode(dp), "record.json").ranks == dp.ranks
    assert len(dp.ranks) == 1


def schema_3(record):
    """The JSON of a record as 0.4.0 wrote it."""
    values = json.loads(encode(record)) | {"schema": 3}
    values["probe"] = values.pop("microbenchmark", None)
    for rank in values["ranks"]:
        rank["trace"] = {"window_s": 2.0}
    return values


def test_record_of_schema_3_is_upgraded():
    full = a_record(a_cell(protocol=Protocol.FULL))
    assert full.microbenchmark is not None
    assert decode(encode(schema_3(full)), "record.json") == full


@pytest.mark.parametrize("ranks", [5, "ranks", None])
def test_malformed_record_of_schema_3_is_refused(ranks):
    text = encode(schema_3(a_record(CELL)) | {"ranks": ranks})
    with pytest.raises(InvalidRecordError, match=r"record.json is not a whole record"):
        decode(text, "record.json")


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_truncated_record_is_refused(share):
    text = change_record().rstrip()
    with pytest.raises(InvalidRecordError, match=r"record.json is not a whole record"):
        decode(text[: int(len(text) * share)], "record.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[]", "Expected `object`, got `array`"),
        (change_record(schema=8), "has record schema 8, this hpml_jobs"),
        (
            change_rank(2, epoch_s=None),
            "Expected `float`, got `null` - at `$.ranks[2].epochs[1].epoch_s`",
        ),
        (
            change_record().replace(b"1.5", b"NaN"),
            "is not a whole record: JSON is malformed",
        ),
        (change_record(outcome=Outcome.RUNNING), "outcome running has no record"),
        (change_record(model=None), "outcome ok without model and facts"),
        (
            change_record(ranks=a_record(CELL).ranks[:3]),
            "ranks [0, 1, 2] are there, 4 were expected",
        ),
        (
            change_rank(1, role="warmup"),
            "rank 1 has no warm-up and timed and instrumented epoch",
        ),
        (
            change_rank(1, iterations=9),
            "rank 1 counted 9 iterations in its timed epoch, not 10",
        ),
        (
            change_rank(3, samples=5119),
            "rank 3 counted 5119 samples in its timed epoch, not 5120",
        ),
        (change_rank(0, epoch_s=-1.0), "ranks[0].epochs[1].epoch_s is negative: -1.0"),
        (
            change_rank(0, stall_s=9.0),
            "impossible times in the timed epoch: 7.997 s, 9.0 s",
        ),
    ],
)
def test_implausible_record_is_refused_with_reason(text, words):
    with pytest.raises(InvalidRecordError, match=r"^record.json[^\n]*$") as refused:
        decode(text, "record.json")
    assert words in str(refused.value)


def test_record_loss_is_mean_over_samples_not_ranks():
    values = json.loads(encode(a_record(CELL)))
    for rank, loss, samples in zip(
        values["ranks"], (1, 1, 1, 5), (100, 100, 100, 500), strict=True
    ):
        rank["epochs"][1] |= {"loss": loss, "samples": samples}
    assert msgspec.convert(values, Record).loss == pytest.approx((300 + 2500) / 800)


def test_write_replaces_file_atomically(tmp_path):
    path = tmp_path / "deep" / "record.json"
    write_whole(path, b"old")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_failed_write_keeps_old_file_and_nothing_else(tmp_path, monkeypatch, broken):
    path = tmp_path / "record.json"
    write_whole(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if broken == "fsync" else Path, broken, full)
    with pytest.raises(OSError, match=r"No space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
