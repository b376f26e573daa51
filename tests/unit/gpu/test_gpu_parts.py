"""Every part for the GPU runs here: stand-ins for CUDA and NVML, hand-made records of jobs."""

import importlib
import math
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.measurements import Stage
from hpml_jobs.core.strategies import Device
from hpml_jobs.study.attempt import Progress
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.worker.process_group import Placement
from tests.gpu.bench import ONE_GPU, Bench
from tests.gpu.catalog import (
    PARTS,
    PATHS,
    SAME_AS_DDP,
    TWO_RANKS,
    keys_of,
)
from tests.gpu.parts import (
    accuracy,
    ceilings,
    endings,
    fp16,
    gpt,
    paths,
    syncs,
)
from tests.gpu.rehearsal import rehearsal
from tests.gpu.sizes import Sizes
from tests.gpu.two_ranks import parameters, replicas
from tests.unit.gpu.conftest import finish

pytestmark = pytest.mark.usefixtures("lone_process_group")

RANKS = {f"two_{name}_{word}" for name in TWO_RANKS for word in ("equal", "bytes")}
DP = {
    f"dp_{name}" for name in ("ok", "rate", "overhead", "closure", "failed", "warned")
}

TF32 = {
    f"{path} {name}"
    for path in PATHS
    if "tf32" in path
    for name in ("rate", "stall", "failed")
}

NOT_MEASURED_HERE = {
    "paths": TF32,
    "threads": {"dp_searches"},
    "comm": {"profiler"},
    "cells": DP | RANKS | {"refused"},
    "fake_ranks": {"peak"},
    "ladder": {"largest", "peak_gb"},
    "ddp_paths": {key for key in keys_of("ddp_paths") if key.startswith("fp16")},
    "quantize": {"failed", "steps", "missing", "reference"},
    "two_gpus": {f"same_{n}" for n in SAME_AS_DDP},
    "gpt": {"mfu"},
    "events": {"behind_graph_us"},
}
"""Figures that need a GPU or a second process."""


@pytest.fixture
def without_processes(monkeypatch):
    """A program that is killed at once in place of the job and of the holder."""
    monkeypatch.setattr(endings, "job_command", started_job)
    monkeypatch.setattr(
        endings, "HOLDER", "import time; print('held', flush=True); time.sleep(60)"
    )
    monkeypatch.setattr(endings, "SETTLE_S", 0.0)


def started_job(folder):
    finish(folder, Outcome.CANCELLED, "received SIGTERM")
    progress = Progress(role=Stage.TIMED, epochs=20)
    write_whole(folder.attempt("gpu.r0").progress, encode(progress))
    return [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


BY_HAND = [part for part in PARTS if part.name != "scripts"]

ONLY_ON_GPU = {
    **{
        name: NOT_MEASURED_HERE[name]
        for name in ("events", "paths", "threads", "comm", "gpt", "fake_ranks")
    },
    "cells": DP | {"refused"},
    "endings": {"edge_oom"},
    "ddp_paths": NOT_MEASURED_HERE["ddp_paths"],
}
"""Figures that only a GPU gives."""


@pytest.mark.parametrize("part", BY_HAND, ids=lambda part: part.name)
def test_part_measures_all_of_its_figures(part, tmp_path, commands, without_processes):
    with rehearsal(tmp_path, commands) as bench:
        check(part, bench, NOT_MEASURED_HERE)


@pytest.mark.long
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_part_is_rehearsed_with_real_jobs(part, tmp_path):
    with rehearsal(tmp_path) as bench:
        figures = check(part, bench, ONLY_ON_GPU)
    ends = {figure.key: figure.value for figure in figures if figure.key.endswith("ok")}
    assert {*ends.values()} <= {1.0, None}, ends
    # not doctor's: a busy machine fails its checks
    codes = [
        figure
        for figure in figures
        if figure.key in ("code", "submit_code", "collect_code")
    ]
    assert [figure.value for figure in codes] == [0] * len(codes), codes


def check(part, bench, not_measured):
    module = importlib.import_module(f"tests.gpu.parts.{part.name}")
    figures = list(module.measure(bench))
    measured = {figure.key for figure in figures if figure.value is not None}
    expected = {expected.key for expected in part.expected}
    assert measured == expected - not_measured.get(part.name, set()), figures
    assert all(figure.note for figure in figures if figure.value is None)
    assert all(math.isfinite(figure.value or 0) for figure in figures)
    return figures


def test_rank_counts_gradient_bytes_and_compares_replicas(tmp_path):
    with rehearsal(tmp_path) as bench:
        dist.init_process_group("gloo")
        results = replicas(bench, Placement(0, 0, 1))
    assert {name: result["bytes"] for name, result in results.items()} == dict.fromkeys(
        TWO_RANKS, 1
    )
    assert all(result["equal"] == 1 for result in results.values())


def test_strategies_train_the_parameters_of_ddp(tmp_path):
    with rehearsal(tmp_path) as bench:
        dist.init_process_group("gloo")
        assert parameters(bench, Placement(0, 0, 1)) == dict.fromkeys(SAME_AS_DDP, 0)


def test_overflow_in_fp16_is_skipped_with_memory_full_of_nan(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        with rehearsal(tmp_path) as bench:
            assert {figure.value for figure in fp16.measure(bench)} == {1.0}
    finally:
        torch.use_deterministic_algorithms(False)


def test_wait_in_the_loop_is_zero_with_torch_s_reason(tmp_path, monkeypatch):
    modes = []
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    monkeypatch.setattr(syncs, "SYNC_PATHS", syncs.SYNC_PATHS[:1])

    def wait(_training, _number, span):
        bench.device = Device.CUDA
        with span:
            raise RuntimeError("called a synchronizing CUDA operation\nC++ trace")

    monkeypatch.setattr(syncs, "instrumented_epoch", wait)
    with rehearsal(tmp_path) as bench:
        (figure,) = syncs.measure(bench)
    assert (figure.value, figure.note) == (0.0, "called a synchronizing CUDA operation")
    assert modes == ["error", 0]


def test_card_without_bf16_leaves_figures_out(tmp_path, commands, monkeypatch):
    monkeypatch.setattr(syncs, "SYNC_PATHS", [("workers", "bf16", "sgd")])
    with rehearsal(tmp_path, commands) as bench:
        bench.card = "Tesla V100-SXM2-16GB"
        for part in (accuracy, gpt, ceilings, paths, syncs):
            for figure in part.measure(bench):
                words = figure.key.split()[0] if part in (ceilings, paths) else "bf16"
                is_newer = words in ("bf16", "tf32")
                assert figure.is_left_out is is_newer


@pytest.mark.parametrize("name", ["two_gpus", "fsdp_memory"])
def test_parts_of_two_gpus_are_left_out_with_one(name, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    part = importlib.import_module(f"tests.gpu.parts.{name}")
    figures = list(part.measure(Bench(tmp_path)))
    assert [figure.key for figure in figures] == keys_of(name)
    assert {figure.note for figure in figures if figure.is_left_out} == {ONE_GPU}


def test_slow_card_does_less_work_and_has_longer_limits(tmp_path):
    limits = []
    bench = Bench(
        tmp_path,
        command=lambda *words: limits.append(words[-1]),
        card="Quadro RTX 8000",
    )
    assert bench.sizes.iterations == Sizes().iterations // 4
    assert bench.sizes.accuracy_seeds == Sizes().accuracy_seeds
    bench.command([], {}, 100)
    assert limits == [pytest.approx(200, rel=0.02)]


def test_noise_is_difference_in_standard_errors():
    figures = accuracy.differences([0.60, 0.62, 0.64], [0.61, 0.62, 0.66])
    difference, noise = (figure.value for figure in figures)
    assert difference == pytest.approx(0.01)
    assert noise == pytest.approx(0.01 / (0.01 / math.sqrt(3)))


def test_search_of_the_largest_batch_passes_the_card_s_memory(tmp_path, monkeypatch):
    most_tried = []
    monkeypatch.setattr(endings, "_memory", lambda: SimpleNamespace(total=141e9))
    monkeypatch.setattr(
        endings, "search_largest", lambda _fits, most, _step: most_tried.append(most)
    )
    with rehearsal(tmp_path) as bench:
        bench.sizes = Sizes()
        list(endings._edge(bench))
    assert most_tried == [32_768]
