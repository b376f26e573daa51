"""Scripts measured from outside, as forked ranks, and why there is no record of one."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.worker.observer.refusals import Observed, unmeasured
from tests.unit.builders import a_cell, a_record
from tests.unit.worker.observer.conftest import script_cell

LOSSES = """
import json, os, sys
import torch
from torch import distributed as dist, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

epochs = int(sys.argv[1])
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
layers = (nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 4))
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
data = TensorDataset(torch.randn(96, 8), torch.randint(4, (96,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, 8, sampler=sampler)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
file = open(f"losses{dist.get_rank()}", "w")
for epoch in range(epochs):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item().hex(), file=file, flush=True)
"""


def roles(record: Record) -> list[str]:
    return [str(epoch.role) for epoch in record.ranks[0].epochs]


def test_ddp_script_is_measured_like_our_loop(observe):
    seen = observe("ddp_torchrun.py", "--batch-size 128")
    record = seen.record
    assert roles(record) == ["warmup", "timed", "instrumented"]
    rank = record.ranks[1]
    assert [(e.iterations, e.samples) for e in rank.epochs] == [(8, 1024)] * 3
    assert {m.purpose: m.count for m in rank.communication.messages}["gradients"] >= 8
    assert rank.communication.bytes_of("gradients") == 8 * record.model.gradient_bytes
    assert record.exchange.collectives
    assert rank.phases.comm_exposed_s > 0
    assert rank.timed.scheduling.continued_s is None
    assert (rank.threads, rank.loader_workers, rank.devices) == (1, 0, ("cpu",))
    assert record.ranks[0].parameters_hash == rank.parameters_hash != ""
    assert record.facts.backend == "gloo"
    assert (record.facts.precision, record.facts.in_windows) == ("unknown", False)
    assert seen.attempt.read_progress().role == "instrumented"
    with np.load(seen.attempt.iterations) as arrays:
        assert arrays["step_s"].shape == arrays["stall_s"].shape == (2, 8)
        assert arrays["collective_s"].shape[0] == 2


def test_without_stop_script_runs_to_its_end(observe, tmp_path):
    seen = observe(LOSSES, "5", batch=8, stop=False)
    assert roles(seen.record) == ["warmup", "timed", "instrumented"]
    assert len((tmp_path / "losses0").read_text().split()) == 30


COLLECTIONS = """
import gc
from pathlib import Path
numbers = []
def count():
    before = gc.get_stats()[2]["collections"]
    batches = iter(loader)
    numbers.append(gc.get_stats()[2]["collections"] - before)
    return batches
"""


def test_garbage_of_a_window_is_collected_before_the_next(observe, tmp_path):
    """Else rank 0, which sees more, collected it within the timed epoch: 10 % of 1.3 s."""
    counting = LOSSES.replace("in loader:", "in count():")
    writes = 'Path(f"collections{dist.get_rank()}").write_text(str(numbers))\n'
    observe(f"{COLLECTIONS}{counting}{writes}", "3", batch=8, stop=False)
    assert (tmp_path / "collections0").read_text() == "[0, 1, 1]"


HOOK = "from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook\n"
REGISTERS = "model.register_comm_hook(None, allreduce_hook)\n"
BACKWARD = "        loss.backward()\n"
BY_HAND = "    [dist.all_reduce(p.grad) for p in model.parameters()]; optimizer.step()"
NOT_SPLIT = {
    "a hook of the script": (HOOK + LOSSES.replace("data =", REGISTERS + "data ="), {}),
    "a collective of the script": (
        LOSSES.replace(BACKWARD, "        dist.all_reduce(loss.detach())\n" + BACKWARD),
        {},
    ),
    "no wrapper": (
        LOSSES.replace("nn.parallel.DistributedDataParallel(", "(").replace(
            "    optimizer.step()", BY_HAND
        ),
        {"strategy": Strategy.ALLREDUCE},
    ),
}


@pytest.mark.parametrize("name", NOT_SPLIT)
def test_exchange_beside_that_of_ddp_is_not_split(observe, name):
    script, fields = NOT_SPLIT[name]
    record = observe(script, "5", batch=8, **fields).record
    assert roles(record) == ["warmup", "timed"]
    assert "exchange more than the gradients" in record.facts.missing[0]


@pytest.mark.parametrize("version", [1, 2])
def test_fsdp_is_not_split(observe, version):
    words = f"--batch-size 128 --version {version}"
    record = observe("fsdp.py", words, strategy=Strategy.FSDP).record
    assert roles(record) == ["warmup", "timed"]
    assert "by FSDP" in record.facts.missing[0]
    assert record.model.parameters == 1323018
    assert {rank.parameters_hash for rank in record.ranks} == {""}


WITH_CLOSURE = """
        def closure():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
"""


def test_step_with_a_closure_is_not_split(observe):
    head, _, rest = LOSSES.partition("        loss =")
    written = rest[rest.index("        print") :]
    record = observe(head + WITH_CLOSURE + written, "5", batch=8).record
    assert roles(record) == ["warmup", "timed"]
    assert "inside where it gets a closure" in record.facts.missing[0]


def test_process_that_cannot_be_measured_lets_the_others_train_together(
    observe, tmp_path
):
    """They must not be ended alone: it would wait for their gradients."""
    broken = (
        "from hpml_jobs.worker.observer import result\n"
        "result.END_S = 1.0\n"
        "def refuse(*_): raise OSError(122, 'Disk quota exceeded')\n"
    )
    fault = "    if epoch == 1 and dist.get_rank(): result.write_whole = refuse\n"
    script = LOSSES.replace("    for inputs", fault + "    for inputs")
    seen = observe(broken + script, "5", batch=8)
    assert seen.code == 0, seen.stderr
    assert len((tmp_path / "losses0").read_text().split()) == 30
    assert len((tmp_path / "losses1").read_text().split()) == 30


def test_wrapper_of_a_single_process_sends_nothing(observe):
    alone = LOSSES.replace(
        '("gloo")', "('gloo', rank=0, world_size=1, store=dist.HashStore())"
    )
    record = observe(alone, "4", gpus=1, batch=8).record
    assert roles(record) == ["warmup", "timed", "instrumented"]
    assert record.ranks[0].communication is None


def test_compiled_wrapper_is_not_compiled_anew(observe):
    compiled = "model = torch.compile(model, backend='eager')\ndata ="
    seen = observe(LOSSES.replace("data =", compiled), "5", batch=8)
    assert roles(seen.record) == ["warmup", "timed"]
    assert "wrap the compiled model instead" in seen.record.facts.missing[0]
    assert "global hooks" not in seen.stderr


def test_module_of_a_folder_that_the_script_adds_is_recorded(observe, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "layers.py").write_text("WIDTH = 16\n")
    adds = f"import sys\nsys.path.append({str(tmp_path / 'lib')!r})\nimport layers\n"
    record = observe(adds + LOSSES, "2", batch=8).record
    assert "layers.py" in [file.name for file in record.facts.imported]
    assert "lib/layers.py" in [file.name for file in record.facts.helpers]


def test_windows_without_a_loader(observe):
    seen = observe(
        "own_get_batch.py", "--batch-size 8 --iterations 40", batch=8, window=(4, 6)
    )
    assert roles(seen.record) == ["warmup", "timed", "instrumented"]
    timed = seen.record.ranks[0].timed
    assert (timed.iterations, timed.samples, timed.stall_s) == (6, 6 * 4 * 8, 0)
    assert seen.record.facts.in_windows


def test_passes_without_a_step_are_no_epochs(observe):
    """The script tests on its training data, before the first epoch and after each."""
    test = "for inputs, _ in loader:\n{0}    model.eval()(inputs)\n{0}model.train()\n"
    script = LOSSES.replace("for epoch", test.format("") + "for epoch")
    seen = observe(script + "    " + test.format("    "), "4", batch=8)
    assert roles(seen.record) == ["warmup", "timed", "instrumented"]
    assert {epoch.iterations for epoch in seen.record.ranks[0].epochs} == {6}


def test_last_batch_of_a_pass_may_be_smaller(observe):
    script = LOSSES.replace("DataLoader(data, 8", "DataLoader(data, 9")
    seen = observe(script, "9", batch=9, window=(4, 13))
    assert seen.record.ranks[0].timed.samples == 13 * 9 - 2 * 6


def test_only_the_optimizer_that_steps_first_is_measured(observe):
    other = "    if epoch == 2:\n        optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
    script = LOSSES.replace("    for inputs", other + "    for inputs")
    assert roles(observe(script, "5", batch=8).record) == ["warmup", "timed"]


def test_os_exit_loses_no_window_that_is_over(observe):
    record = observe("os_exit.py", "--batch-size 128", gpus=1).record
    assert roles(record)[:2] == ["warmup", "timed"]


def test_fault_of_the_measurement_is_no_fault_of_the_script(
    observe, monkeypatch, tmp_path
):
    broken = (
        "import hpml_jobs.worker.observer.training as s\ns.split_iterations = None\n"
    )
    seen = observe(broken + LOSSES, "3", batch=8)
    assert seen.code == 0, seen.stderr
    assert len((tmp_path / "losses0").read_text().split()) == 18
    assert seen.reason.startswith(
        "the measurement of a script failed: TypeError: 'NoneType'"
    )


def an_observed(rank: int, **fields) -> Observed:
    record = a_record(a_cell(gpus=2))
    devices = fields.pop("devices", ("cpu",))
    of_rank = msgspec.structs.replace(record.ranks[0], rank=rank, devices=devices)
    values = {
        "rank": of_rank,
        "world_size": 2,
        "wrapper": Strategy.DDP,
        "model": record.model,
        "steps": 40,
        "passes": (10, 10),
        "batches": (32,),
    }
    return Observed(**(values | fields))


def ranks(number: int = 2, **fields) -> list[Observed]:
    return [an_observed(rank, **fields) for rank in range(number)]


def untimed(**fields) -> list[Observed]:
    observed = ranks(**fields)
    return [
        msgspec.structs.replace(o, rank=msgspec.structs.replace(o.rank, epochs=()))
        for o in observed
    ]


SENTENCES = [
    ([], {}, "no step of an optimizer of torch was seen"),
    (ranks(1), {}, "1 process of train.py trained, 2 of gpus=2 are to"),
    (ranks(devices=("Tesla T4",)), {}, "the parameters of train.py are on Tesla T4"),
    (ranks(world_size=1), {}, "process group has 1"),
    (ranks(wrapper=Strategy.FSDP), {}, "but the model of train.py has FSDP"),
    (untimed(passes=(9, 4)), {}, "2 whole epochs of train.py seen (9, 4 batches)"),
    (untimed(window=(30, 40)), {}, "window=30,40 needs 70"),
    (ranks(batches=(64,)), {}, "have 64 samples: pass {batch}"),
    (ranks(batches=(64,)), {"args": "-b {global_batch}"}, None),
    (ranks(), {"args": "-b {batch}"}, None),
]


@pytest.mark.parametrize(("observed", "fields", "words"), SENTENCES)
def test_sentence_says_why_there_is_no_record(observed, fields, words):
    cell = script_cell("train.py", fields.get("args", ""), gpus=2, batch=32)
    reason = unmeasured(cell, cell.script, observed)
    assert (reason is None) if words is None else words in reason
    assert "\n" not in (reason or "")


ON_GPU = """
import os, sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tests.unit.worker.observer.scripted_script import Network, Steps, collate, created
from tests.unit.worker.observer.scripted_script import gpu, install

install()
gpu.script = gpu.script._replace(launch=float(sys.argv[1]))
model = Network(8, 4)
data = TensorDataset(torch.randn(64, 8), torch.randint(4, (64,)))
loader = DataLoader(data, 8, collate_fn=collate)
optimizer = Steps(model.parameters(), 0.1)
for epoch in range(4):
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        gpu.synchronize()
with open("created" + os.environ.get("RANK", ""), "w") as file:
    print(*created, file=file)
"""


def created_events(folder: Path) -> list[list[str]]:
    """Events of CUDA that were created in each window after the warm-up, by rank."""
    return [path.read_text().split()[1:] for path in folder.glob("created*")]


def test_no_event_is_created_in_a_window(observe, tmp_path):
    script = ON_GPU.replace("range(4)", "range(6)")
    seen = observe(script, "1", gpus=1, batch=8, stop=False)
    assert roles(seen.record) == ["warmup", "timed", "instrumented"]
    assert created_events(tmp_path) == [["0", "0"]]


def test_no_event_is_created_for_many_buckets(observe, tmp_path):
    layers = "nn.Sequential(*[nn.Linear(8, 8) for _ in range(60)], Network(8, 4))"
    wrapped = f"nn.parallel.DistributedDataParallel({layers}, bucket_cap_mb=1e-5)"
    group = "torch.distributed.init_process_group('gloo')\n"
    script = ON_GPU.replace("Network(8, 4)", wrapped).replace(
        "model =", f"{group}model ="
    )
    seen = observe(script, "1", batch=8, stop=False)
    assert seen.record.exchange.collectives > 8 * 60
    assert created_events(tmp_path) == [["0", "0"]] * 2


CAPTURES = """
import sys
import torch
from tests.unit.worker.observer.scripted_script import Network, Steps, gpu, install

install()
model = Network(8, 4)
optimizer = Steps(model.parameters(), 0.1)

def train(steps, is_capturing=False):
    torch.cuda.is_current_stream_capturing = lambda: is_capturing
    for _ in range(steps):
        model(torch.randn(8, 8)).sum().backward()
        optimizer.step()

torch.cuda.is_initialized = lambda: True
train(4)
before = gpu.events, gpu.synchronizations
train(6, is_capturing=True)
assert (gpu.events, gpu.synchronizations) == before
train(int(sys.argv[1]))
"""


def test_steps_inside_a_graph_capture_are_left_alone(observe):
    """With window=2,3 the timed window would end inside of it."""
    reason = "what train.py captures in a CUDA graph is not seen"
    seen = observe(CAPTURES, "0", gpus=1, batch=8, window=(2, 3))
    assert seen.code == 0, seen.stderr
    assert seen.reason.startswith(reason)
    record = observe(CAPTURES, "9", gpus=1, batch=8, window=(2, 3)).record
    assert roles(record) == ["warmup", "timed", "instrumented"]
    assert record.ranks[0].timed.iterations == 3
    assert any(missing.startswith(reason) for missing in record.facts.missing)
