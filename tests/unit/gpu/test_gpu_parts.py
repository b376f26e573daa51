"""Every part for the GPU runs here: stand-ins for CUDA, jobs on the CPU."""

import importlib
import math

import pytest
import torch
import torch.distributed as dist

from tests.gpu.catalog import PARTS, PATHS, cell_keys
from tests.gpu.parts import fp16
from tests.gpu.rehearsal import rehearsal
from tests.unit.worker.conftest import dynamo, restored_modes  # noqa: F401  (fixtures)

TF32 = [path for path in PATHS if "tf32" in path]

ONLY_ON_GPU = {
    "paths": {
        f"{path} {name}" for path in TF32 for name in ("rate", "stall", "failed")
    },
    "comm": {"profiler"},
    "cells": {*cell_keys("dp"), "refused"},
    "fake_ranks": {"peak"},
    "ddp_paths": {*cell_keys("fp16")},
    "gpt": {"mfu"},
    "events": {"behind_graph_us"},
}
"""Figures that only a GPU gives."""


@pytest.fixture(autouse=True)
def lone_process_group(monkeypatch):
    """Environment of a process group of one, which is left after the test."""
    threads = torch.get_num_threads()
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", **place}.items():
        monkeypatch.setenv(name, value)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()
    torch.set_num_threads(threads)


def rehearsed(part):
    """Return a part as a parameter; most take minutes."""
    marks = [] if part.name == "events" else [pytest.mark.long]
    return pytest.param(part, id=part.name, marks=marks)


@pytest.mark.parametrize("part", [rehearsed(part) for part in PARTS])
def test_part_measures_all_of_its_figures(part, tmp_path):
    module = importlib.import_module(f"tests.gpu.parts.{part.name}")
    with rehearsal(tmp_path) as bench:
        figures = list(module.measure(bench))
    measured = {figure.key for figure in figures if figure.value is not None}
    expected = {expected.key for expected in part.expected}
    assert measured == expected - ONLY_ON_GPU.get(part.name, set()), figures
    assert all(figure.note for figure in figures if figure.value is None)
    assert all(math.isfinite(figure.value or 0) for figure in figures)
    ends = {figure.key: figure.value for figure in figures if figure.key.endswith("ok")}
    assert {*ends.values()} <= {1.0, None}, ends


def test_overflow_in_fp16_is_skipped_with_memory_full_of_nan(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        with rehearsal(tmp_path) as bench:
            assert {figure.value for figure in fp16.measure(bench)} == {1.0}
    finally:
        torch.use_deterministic_algorithms(False)
