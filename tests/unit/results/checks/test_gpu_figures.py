"""Peaks of GPUs: found by the names that drivers report, with plausible bounds."""

import pytest

from hpml_jobs.results.gpus import gpu_key, peak_rate, peaks


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA B200", "b200"),
        ("NVIDIA GeForce RTX 5090", "rtx5090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"),
        ("NVIDIA TITAN V", "titanv"),
    ],
)
def test_gpu_has_figures_by_the_driver_s_name(name, key):
    assert gpu_key(name) == key


def test_mfu_on_geforce_is_a_share_of_the_rate_with_sums_in_fp32():
    geforce = ("rtx2080ti", "rtx3090", "rtx4090", "rtx5090")
    rates = {
        gpu: (peak_rate(gpu, "fp16").flop_per_s / 1e12, peak.half)
        for gpu, peak in peaks().items()
        if peak.half
    }
    halves = {gpu: rate for gpu, (rate, half) in rates.items() if rate < 0.99 * half}
    assert halves == dict(zip(geforce, (56.9, 71.0, 165.2, 209.5), strict=True))
