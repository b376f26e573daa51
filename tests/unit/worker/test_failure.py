"""The error report of a rank."""

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hpml_jobs.core.errors import HpmlError, NodeFaultError
from hpml_jobs.worker.failure import describe, is_oom, lacks_torch, reason_of
from tests.patience import wait_until


def wrapped(error):
    try:
        try:
            raise error
        except Exception as inner:
            raise ValueError("the trainer gave up") from inner
    except ValueError as outer:
        return outer


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        MemoryError(),
        RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried …"
        ),
        RuntimeError(
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
        ),
        RuntimeError(
            "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"
        ),
        RuntimeError(
            "NCCL error: unhandled cuda error … Last error:\nCuda failure 2 'out of memory'"
        ),
        RuntimeError("ncclUnhandledCudaError: Last error:\nCuda failure 2"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_out_of_memory_is_recognized_bare_and_wrapped(error):
    assert is_oom(error)
    assert is_oom(wrapped(error))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ModuleNotFoundError("words", name="torch"), True),
        (ModuleNotFoundError("words", name="torch.no_such_part"), False),
        (ValueError("No module named 'torch'"), False),
    ],
)
def test_missing_torch_is_recognized_by_module_name(error, expected):
    assert lacks_torch(error) is expected
    assert lacks_torch(wrapped(error)) is expected


@pytest.mark.parametrize(
    "error",
    [
        ValueError("out of memory"),
        HpmlError("out of memory"),
    ],
)
def test_other_errors_are_not_out_of_memory(error):
    assert not is_oom(error)


NO_ENGINE = "{} was unable to find an engine to execute this computation"


@pytest.fixture
def allocator(monkeypatch):
    """CUDA's allocator with the statistics that a test puts in."""
    statistics = {}
    for name, value in {
        "is_initialized": lambda: True,
        "device_count": lambda: 2,
        "memory_stats": lambda number: statistics if number == 1 else {},
        "max_memory_reserved": lambda _: 15.2e9,
        "get_device_properties": lambda _: SimpleNamespace(total_memory=15.9e9),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return statistics


@pytest.mark.parametrize("search", ["FIND", "GET"])
def test_cudnn_without_engine_is_oom_if_memory_was_refused(allocator, search):
    error = RuntimeError(NO_ENGINE.format(search))
    assert not describe(error, 0).oom  # a computation that cuDNN does not know
    allocator["num_ooms"] = 3
    report = describe(wrapped(error), 0)
    assert report.oom
    assert report.reason.startswith(
        "out of memory: GPU 1 refused memory at 15.2 of 15.9 GB (ValueError: the trainer"
    )
    assert not describe(RuntimeError("shape mismatch"), 0).oom


@pytest.mark.parametrize(
    ("error", "is_fault"),
    [
        (
            RuntimeError(
                "CUDA error: uncorrectable ECC error encountered\nCUDA kernel"
            ),
            True,
        ),
        (
            RuntimeError(
                "CUDA error: CUDA-capable device(s) is/are busy or unavailable"
            ),
            True,
        ),
        (
            RuntimeError("uncorrectable NVLink error detected during the execution"),
            True,
        ),
        (NodeFaultError("other processes use 44 GB of GPU 3"), True),
        # a kernel's pointer
        (
            RuntimeError("CUDA error: unspecified launch failure"),
            False,
        ),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("uncorrectable ECC error encountered"), False),
        (HpmlError("GPU is lost"), False),
    ],
)
def test_error_of_the_hardware_is_the_nodes_fault(monkeypatch, error, is_fault):
    monkeypatch.setenv("HPML_JOBS_HOST", "gr007")
    for raised in (error, wrapped(error)):
        report = describe(raised, 2)
        assert (report.node_fault, report.host) == (is_fault, "gr007")


def test_reason_is_a_whole_sentence():
    spawned = (
        "\n        An attempt has been made to start a new process before the\n        current "
        "process has finished its bootstrapping phase.\n\n        This probably means that"
    )
    reason = reason_of(RuntimeError(spawned))
    assert reason.startswith(
        "RuntimeError: An attempt has been made to start a new process before"
    )
    wrapped = "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent "
    wrapped += "call last):\n  File 'a'\nValueError: the picture is larger than\n  the limit\nnote"
    assert (
        reason_of(ValueError(wrapped))
        == "ValueError: the picture is larger than the limit note"
    )
    assert reason_of(RuntimeError("Error(s) in loading:\n\tMissing key")) == (
        "RuntimeError: Error(s) in loading: Missing key"
    )
    assert reason_of(
        RuntimeError("CUDA error: assert\nCUDA kernel errors may be reported late")
    )
    report = describe(HpmlError("no data"), 3)
    assert (report.rank, report.oom, report.reason) == (3, False, "no data")
    assert "HpmlError: no data" in report.traceback


FORKED_LATE = """
import multiprocessing, os, signal, time
from hpml_jobs.core.processes import die_with_parent

def work():
    time.sleep(0.5)
    die_with_parent()
    time.sleep(3600)

multiprocessing.set_start_method("fork")
worker = multiprocessing.Process(target=work)
worker.start()
print(worker.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_worker_whose_parent_died_before_it_asked_ends():
    """A loader worker of a rank that was killed at its first batch, on a busy machine."""
    command = [sys.executable, "-c", FORKED_LATE]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        worker = int(killed.stdout.readline())
    assert killed.returncode == -signal.SIGKILL
    wait_until(lambda: not Path(f"/proc/{worker}").exists(), "the worker ends")


TERMINATED = """
import signal, subprocess, sys, os
from hpml_jobs.core.processes import die_with_parent

if len(sys.argv) > 1:
    signal.signal(signal.SIGTERM, lambda *_: open(sys.argv[1], "w").close() or sys.exit())
    die_with_parent(signal.SIGTERM)
    print("ready", flush=True)
    signal.pause()
subprocess.Popen([sys.executable, __file__, "ended"], stdout=subprocess.PIPE).stdout.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_wrapper_whose_parent_is_killed_ends_its_ranks_first(tmp_path):
    (tmp_path / "start.py").write_text(TERMINATED)
    killed = subprocess.run([sys.executable, "start.py"], cwd=tmp_path, check=False)
    assert killed.returncode == -signal.SIGKILL
    wait_until((tmp_path / "ended").exists, "the wrapper gets SIGTERM")
