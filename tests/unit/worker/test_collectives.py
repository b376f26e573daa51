"""Fingerprints of replicas."""

import torch

from hpml_jobs.worker.instruments.collectives import fingerprint


def test_fingerprint_detects_one_bit():
    first = torch.arange(6.0).reshape(2, 3)
    second = first.clone()
    assert fingerprint([first]) == fingerprint([second])
    second[1, 2] += 1
    assert fingerprint([first]) != fingerprint([second])
    assert fingerprint([first.t().contiguous()]) != fingerprint([first])
