"""Losses on held-out text in bits per byte."""

from math import log
from statistics import fmean

from hpml_jobs.core.record import Record
from hpml_jobs.core.workload import Loss


def bits_per_byte(nats_per_token: float, bytes_per_token: float) -> float:
    """Return a cross entropy in bits per byte of text: loss / (ln 2 x bytes per token).

    Losses of models with different tokens can be compared in it.

    >>> bits_per_byte(log(256), 1)
    8.0
    """
    return nats_per_token / (log(2) * bytes_per_token)


def record_bits_per_byte(record: Record, loss: float | None) -> float | None:
    """Return a loss of a record in bits per byte; None unless the tokens are of text.

    Another loss than cross entropy has no bits.
    """
    workload = record.cell.workload
    size = workload.bytes_per_token
    if loss is None or size is None or workload.loss != Loss.CROSS_ENTROPY:
        return None
    return bits_per_byte(loss, size)


def mean_test_loss(record: Record) -> float | None:
    """Return the mean loss on the whole test set after the last epoch: the mean over ranks."""
    losses = [rank.test_loss for rank in record.ranks if rank.test_loss is not None]
    return fmean(losses) if losses else None


def test_bits_per_byte(record: Record) -> float | None:
    """Return the loss on the held-out text in bits per byte; None without text."""
    return record_bits_per_byte(record, mean_test_loss(record))


def unigram_bits_per_byte(record: Record) -> float | None:
    """Return the unigram entropy of the held-out text; None without text."""
    facts = record.facts
    return facts.text.unigram_bits_per_byte if facts and facts.text else None


def bits(value: float) -> str:
    """Return bits per byte with three decimals.

    >>> bits(2.34567)
    '2.346'
    """
    return f"{value:.3f}"
