"""A whole cell with device=cuda on CPU tensors: its record has the times of a scripted GPU."""

import msgspec
import numpy as np
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Loader, Strategy
from hpml_jobs.core.validation import decode
from hpml_jobs.results.checks import study as checks
from hpml_jobs.worker import loop
from hpml_jobs.worker.instruments.timing import DeviceClock

from .conftest import cuda_cell
from .scripted_gpu import GPU, Script, ScriptedDDP, ScriptedSingle, scripted_gpu

CPU = (torch.device("cpu"),)
ITERATIONS = 8


@pytest.fixture
def measure(write_cell, monkeypatch):
    """Return a function that runs a cell in this process on a scripted GPU: attempt, record."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    threads = torch.get_num_threads()
    # only once
    monkeypatch.setattr(torch, "set_num_interop_threads", lambda threads: None)
    monkeypatch.setattr(loop, "devices_for", lambda cell, local_rank: CPU)
    monkeypatch.setitem(loop.STRATEGIES, Strategy.SINGLE, ScriptedSingle)
    monkeypatch.setitem(loop.STRATEGIES, Strategy.DDP, ScriptedDDP)

    def run(cell, script):
        attempt = write_cell(cell).attempt("17_0")
        with scripted_gpu(monkeypatch, script):
            loop.measure(write_cell(cell).read(), attempt)
        return attempt, decode(attempt.record.read_bytes(), "record")

    yield run
    torch.set_num_threads(threads)


def test_phases_are_those_of_the_scripted_gpu(measure):
    script = Script()
    attempt, record = measure(cuda_cell(), script)
    (rank,) = record.ranks
    parts = msgspec.structs.asdict(rank.phases).items()
    # and no communication
    assert {name: round(1e3 * seconds, 6) for name, seconds in parts if seconds} == {
        # of the first batch: later ones are loaded while the GPU computes
        "stall_s": script.load,
        "h2d_s": ITERATIONS * script.copy,
        "forward_s": ITERATIONS * script.forward,
        "backward_s": ITERATIONS * script.backward,
        "optimizer_s": ITERATIONS * script.optimizer,
    }
    epoch_s = 1e-3 * (script.load + ITERATIONS * script.device)
    for role in (Role.WARMUP, Role.TIMED, Role.INSTRUMENTED):
        assert rank.epoch(role).epoch_s == pytest.approx(epoch_s)
        assert rank.epoch(role).stall_s == pytest.approx(1e-3 * script.load)
    assert rank.epoch(Role.INSTRUMENTED).closure == pytest.approx(0, abs=1e-9)
    with np.load(attempt.iterations) as arrays:
        assert arrays["step_s"][0, 1:] == pytest.approx(1e-3 * script.device)
    failed = [
        r.check for r in checks.check_record(record) if r.level is checks.Level.FAIL
    ]
    assert {*failed} <= {"disturbed"}  # the load of this machine
    assert record.facts.cudnn_benchmark is True
    assert rank.timed.launch_s == pytest.approx(1e-3 * 4 * script.launch)
    assert rank.startup.imports_s > 0
    assert rank.startup.first_batch_s == pytest.approx(1e-3 * script.load)
    assert rank.startup.first_iteration_s == pytest.approx(1e-3 * script.device)


def test_ddp_phases_are_those_of_the_scripted_gpu(measure, monkeypatch):
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    script, rates = Script(), []
    set_rate = "_set_ddp_runtime_logging_sample_rate"
    monkeypatch.setattr(
        DistributedDataParallel, set_rate, lambda _, rate: rates.append(rate)
    )
    _, record = measure(cuda_cell(gpus=2, images=64 * ITERATIONS), script)
    # no wrapper of DDP waits for the device to time itself
    assert set(rates) == {10**9}
    phases, communication = record.phases, record.communication
    in_all = {
        "h2d_s": script.copy,
        "forward_s": script.buffers + script.forward,
        "backward_s": script.backward,
        "comm_exposed_s": script.all_reduce,  # one bucket, sent when backward is done
        "optimizer_s": script.optimizer,
        "comm_forward_s": script.buffers,
    }
    for name, milliseconds in in_all.items():
        assert getattr(phases, name) == pytest.approx(
            1e-3 * ITERATIONS * milliseconds
        ), name
    assert phases.stall_s == pytest.approx(1e-3 * script.load)
    assert communication.buffers_s == pytest.approx(1e-3 * ITERATIONS * script.buffers)
    assert communication.gradients_s == pytest.approx(
        1e-3 * ITERATIONS * script.all_reduce
    )
    assert {(m.purpose.value, m.dtype, m.count) for m in communication.messages} == {
        ("gradients", "float32", ITERATIONS),
        ("buffers", "float32", ITERATIONS),
        ("buffers", "int64", ITERATIONS),  # of the same call, so their time counts once
    }
    unsynced = record.ranks[0].epoch(Role.UNSYNCED)
    assert unsynced.epoch_s == pytest.approx(
        1e-3 * (script.load + ITERATIONS * script.device)
    )
    assert record.comm_cost_s == pytest.approx(1e-3 * ITERATIONS * script.buffers)
    failed = [
        r.check for r in checks.check_record(record) if r.level is checks.Level.FAIL
    ]
    assert {*failed} <= {"disturbed"}  # the load of this machine


def test_process_killed_after_training_leaves_the_record(
    measure, write_cell, monkeypatch
):
    def die(*_args, **_options):
        raise SystemExit

    monkeypatch.setattr(loop, "probe", die)
    cell = cuda_cell()
    with pytest.raises(SystemExit):
        measure(cell, Script())
    record = decode(write_cell(cell).attempt("17_0").record.read_bytes(), "record")
    assert record.ranks[0].phases is not None


def test_slow_loader_is_the_stall_of_the_device(measure):
    script = Script(load=30.0)
    _, record = measure(cuda_cell(protocol=Protocol.LAB, epochs=2), script)
    (rank,) = record.ranks
    # the host runs ahead while it launches
    late = script.load + 4 * script.launch - script.device
    assert rank.timed.stall_s == pytest.approx(
        1e-3 * (script.load + (ITERATIONS - 1) * late)
    )
    assert rank.timed.stalls.first_s == pytest.approx(1e-3 * script.load)
    assert "loader-bound" in {
        r.check for r in checks.check_record(record) if r.level is checks.Level.WARN
    }


def test_images_of_the_device_are_made_after_the_stall(measure):
    script = Script(load=0.0, copy=5.0)
    _, record = measure(cuda_cell(loader=Loader.DEVICE), script)
    (rank,) = record.ranks
    assert rank.phases.stall_s == rank.timed.stall_s == 0
    assert rank.phases.h2d_s == pytest.approx(1e-3 * ITERATIONS * script.copy)


def test_events_are_created_before_the_epoch_and_used_again(monkeypatch):
    with scripted_gpu(monkeypatch, Script()) as gpu:
        clock = DeviceClock(GPU)
        clock.prepare(3)
        first = [clock.stamp() for _ in range(3)]
        assert gpu.events == 3
        extra = clock.stamp()  # more messages than were expected
        assert gpu.events == 4
        clock.prepare(4)
        assert [clock.stamp() for _ in range(4)] == [*first, extra]
        assert gpu.events == 4
