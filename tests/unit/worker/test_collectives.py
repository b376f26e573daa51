"""The ledger: bytes at the call, aggregation by kind and size, and fingerprints of replicas."""

import torch

from hpml_jobs.core.measurements import CollectiveKind, Purpose
from hpml_jobs.worker.instruments.collectives import (
    Ledger,
    aggregate,
    fingerprint,
    recorded,
)
from hpml_jobs.worker.instruments.timing import HostClock


def test_bytes_are_elements_times_element_size():
    ledger = Ledger(HostClock())
    for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2), (torch.int64, 8)):
        collective = ledger.begin(
            CollectiveKind.ALL_REDUCE, Purpose.GRADIENTS, torch.zeros(3, 5, dtype=dtype)
        )
        assert (collective.elements, collective.bytes) == (15, 15 * size)


def test_tensors_sent_together_are_one_message():
    ledger = Ledger(HostClock())
    with recorded(
        ledger,
        CollectiveKind.BROADCAST,
        Purpose.BUFFERS,
        torch.zeros(64),
        torch.zeros(36),
    ):
        pass
    (collective,) = ledger.collectives
    assert (collective.elements, collective.bytes) == (100, 400)
    assert collective.end >= collective.start


def test_messages_of_one_kind_and_size_are_aggregated():
    ledger = Ledger(HostClock())
    for iteration in range(3):
        ledger.iteration = iteration
        for size in (10, 20):
            ledger.end(
                ledger.begin(
                    CollectiveKind.ALL_REDUCE, Purpose.GRADIENTS, torch.zeros(size)
                )
            )
    messages = aggregate(ledger.collectives, [1.0, 2.0, 1.5, 2.5, 1.0, 3.0])
    assert [(m.bytes, m.count, m.busy_s) for m in messages] == [
        (40, 3, 3.5),
        (80, 3, 7.5),
    ]


def test_fingerprint_detects_one_bit():
    first = torch.arange(6.0).reshape(2, 3)
    second = first.clone()
    assert fingerprint([first]) == fingerprint([second])
    second[1, 2] += 1
    assert fingerprint([first]) != fingerprint([second])
    assert fingerprint([first.t().contiguous()]) != fingerprint([first])
