"""What a script writes while it is measured: the files of the script alone, in every bit."""

import os
from pathlib import Path

import pytest

PRELUDE = """
import copy, os, random, signal, sys
import numpy as np
import torch
from torch import distributed as dist, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank = int(os.environ.get("RANK", "0"))
folder = os.path.join(os.environ["FILES"], str(rank))
os.makedirs(folder, exist_ok=True)
if "RANK" in os.environ:
    dist.init_process_group("gloo")
random.seed(1), np.random.seed(1), torch.manual_seed(1)
layers = (nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 4))
model = nn.Sequential(*layers)
if dist.is_initialized():
    model = nn.parallel.DistributedDataParallel(model)
data = TensorDataset(torch.randn(96, 8), torch.randint(4, (96,)))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
log = open(f"{folder}/log", "w")
steps = 0


def save(name):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, f"{folder}/{name}.pt")


def train(epoch, batches=None):
    global steps
    sampler = DistributedSampler(data) if dist.is_initialized() else None
    if sampler:
        sampler.set_epoch(epoch)
    loader = DataLoader(data, 8, sampler=sampler, shuffle=sampler is None)
    for number, (inputs, targets) in enumerate(loader):
        if number == batches:
            break
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        drawn = random.random(), float(np.random.rand()), torch.rand(1).item()
        print(loss.item().hex(), *drawn, file=log, flush=True)
        step(steps)


def step(number):
    pass
"""

PLACES = {
    "one more step": "for n in range(3): train(n, 1 if n == 2 else None)\nsave('end')",
    "every epoch is cut": "for n in range(5): train(n, 4)\nsave('end')",
    "two epochs": "for n in range(2): train(n)\nsave('end')",
    "three epochs": "for n in range(3): train(n)\nsave('end')",
    "saves in every epoch": "for n in range(5):\n    train(n)\n    save(n)",
    "exception": """
def step(number):
    if number == 15: raise RuntimeError
try:
    for n in range(4): train(n)
finally:
    save('end')""",
    "sys.exit": """
def step(number):
    if number == 15: sys.exit(0)
try:
    for n in range(4): train(n)
except SystemExit:
    save('end')""",
    "SIGTERM with a handler": """
def handle(*_):
    save('end')
    os._exit(0)
def step(number):
    if number == 15: signal.raise_signal(signal.SIGTERM)
signal.signal(signal.SIGTERM, handle)
for n in range(4): train(n)""",
    "SIGTERM": """
def step(number):
    save('last')
    if number == 15:
        if dist.is_initialized(): dist.barrier()  # both have saved when the first one ends
        signal.raise_signal(signal.SIGTERM)
for n in range(4): train(n)""",
}
"""Ways in which a training may stop near its third epoch, the last one that is measured."""

CASES = [
    ("one more step", 2),
    ("every epoch is cut", 2),
    ("two epochs", 1),
    ("three epochs", 1),
    ("three epochs", 2),
    ("saves in every epoch", 2),
    ("exception", 2),
    ("sys.exit", 1),
    ("SIGTERM with a handler", 2),
    ("SIGTERM", 2),
]


def files_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def written(observe, rank_server, tmp_path, monkeypatch):
    """Run a script alone and observed; return what each wrote, and what was seen."""

    def run(script, gpus, **fields):
        for name in ("watched", "alone"):
            (tmp_path / name).mkdir()
        monkeypatch.setenv("FILES", str(tmp_path / "watched"))
        seen = observe(script, gpus=gpus, batch=8, **fields)
        monkeypatch.setenv("FILES", str(tmp_path / "alone"))
        words = (
            "tests.unit.worker.observer.observed_script",
            str(tmp_path / "train.py"),
        )
        rank_server.run(gpus, tmp_path, *words, environment=os.environ)
        return files_of(tmp_path / "alone"), files_of(tmp_path / "watched"), seen

    return run


def assert_own(
    alone: dict[str, bytes], watched: dict[str, bytes], *, is_cut: bool
) -> None:
    """Check that files are the script's own; those of one that was ended may lack their end."""
    if not is_cut:
        assert watched.keys() == alone.keys()
    for name, content in watched.items():
        own = alone[name]
        assert content == (
            own[: len(content)] if is_cut and name.endswith("log") else own
        ), name


@pytest.mark.parametrize(("place", "gpus"), CASES)
def test_files_are_those_of_the_script(written, place, gpus):
    alone, watched, seen = written(PRELUDE + PLACES[place], gpus)
    assert_own(alone, watched, is_cut="was ended" in seen.note)


WHOLE = """
ema = copy.deepcopy(model)

def step(number):
    model_of_step = copy.deepcopy(model)
    model.register_forward_hook(lambda *_: None).remove()
    module = model.module if dist.is_initialized() else model
    torch.save(module, f"{folder}/model{number}.pt")
    if dist.is_initialized():
        torch.save(model, f"{folder}/wrapped{number}.pt")
    ema.load_state_dict(model.state_dict())

for n in range(3): train(n)
"""


@pytest.mark.parametrize(("gpus", "window"), [(1, (4, 5)), (2, None)])
def test_models_that_are_saved_and_copied_have_nothing_of_ours(written, gpus, window):
    alone, watched, seen = written(PRELUDE + WHOLE, gpus, window=window)
    assert [str(e.role) for e in seen.record.ranks[0].epochs][2:] == ["instrumented"]
    assert len(watched) > 10
    assert_own(alone, watched, is_cut=True)


HOOKS = """
handles = []
def step(number):
    if number % 4 == 0:
        handles.append(model.register_forward_hook(print))
    with open(f"{folder}/ids", "a") as ids:
        print([handle.id for handle in handles], dict(os.environ), file=ids)
    handles and handles[-1].remove()
for n in range(3): train(n)
"""


def test_numbers_of_hooks_and_variables_stay(written):
    ours = ("FILES", "HPML_JOBS_OBSERVE", "MASTER_PORT")
    variables = f"sorted({{*os.environ}} - {{*{ours}}})"
    script = PRELUDE + HOOKS.replace("dict(os.environ)", variables)
    alone, watched, seen = written(script, 2)
    assert seen.record.exchange.collectives
    assert_own(alone, watched, is_cut=True)


IN_VIEWS = PRELUDE.replace(
    "DistributedDataParallel(model)",
    "DistributedDataParallel(model, gradient_as_bucket_view=True)",
)


@pytest.mark.parametrize("script", [PRELUDE, IN_VIEWS], ids=["new", "in buckets"])
def test_gradients_of_three_ranks_do_not_change(written, script):
    """A third is no binary fraction: DDP multiplies new gradients, and divides those in buckets."""
    body = "for n in range(5): train(n)"
    alone, watched, seen = written(script + body, 3, stop=False)
    is_split = len(seen.record.ranks[0].epochs) == 3
    assert is_split is (script is PRELUDE)
    assert_own(alone, watched, is_cut=False)


JOINS = PRELUDE.replace(
    "DistributedSampler(data) if dist.is_initialized() else None", "None"
)
JOINS += """
data = TensorDataset(*(part[: 32 + 24 * rank] for part in data.tensors))
for n in range(5):
    with model.join():
        train(n)
save("end")
"""


def test_uneven_ranks_are_named_at_once(written):
    alone, watched, seen = written(JOINS, 2)
    assert_own(alone, watched, is_cut=False)
    words = "rank 0 of train.py trained 4 iterations in the timed epoch, rank 1 7: shard its data"
    assert words in seen.reason


IN_HOOK = """
class Stop(Exception):
    pass

class Indices(list):
    def __len__(self):
        if steps >= 8: signal.raise_signal(signal.SIGUSR1)
        return 8

class Handler:
    def stop(self, *_):
        raise Stop

def stop(*_):
    raise Stop

signal.signal(signal.SIGUSR1, HANDLER)
class Sampler(torch.utils.data.BatchSampler):
    def __iter__(self):
        return map(Indices, super().__iter__())

def DataLoader(data, size, sampler=None, **_):
    sampler = sampler or torch.utils.data.SequentialSampler(data)
    return torch.utils.data.DataLoader(data, batch_sampler=Sampler(sampler, size, False))
try:
    for n in range(4): train(n)
except Stop:
    save("stopped")
"""


@pytest.mark.parametrize("handler", ["stop", "Handler().stop"])
def test_exception_of_a_signal_handler_reaches_the_script(
    observe, tmp_path, monkeypatch, handler
):
    """It comes while the observer reads the size of a batch."""
    monkeypatch.setenv("FILES", str(tmp_path))
    script = PRELUDE + IN_HOOK.replace("HANDLER", handler)
    seen = observe(script, gpus=1, batch=8)
    assert (tmp_path / "0" / "stopped.pt").exists(), seen


WRITES_BESIDE = """
import concurrent.futures, multiprocessing, threading, time
pool = concurrent.futures.ThreadPoolExecutor(2)
idle = threading.Thread(target=time.sleep, args=(600,), daemon=True)
idle.start()

def write(name, content):
    with open(f"{folder}/{name}", "w", buffering=1) as file:
        for part in content.split():
            file.write(part)
            time.sleep(0.02)

for n in range(4):
    train(n)
    words = "word " * 20
    if n == 2:
        continue  # it is ended before
    [pool.submit(write, f"pool{n}-{number}", words) for number in range(3)]
    threading.Thread(target=write, args=(f"thread{n}", words)).start()
    multiprocessing.get_context("fork").Process(target=write, args=(f"process{n}", words)).start()
pool.shutdown()
for writer in {*threading.enumerate(), *multiprocessing.active_children()}:
    writer.daemon or writer is threading.main_thread() or writer.join()
"""


def test_files_that_are_written_beside_the_training_are_whole(written):
    alone, watched, seen = written(PRELUDE + WRITES_BESIDE, 2)
    assert "was ended" in seen.note
    assert {name.partition("/")[2] for name in watched} >= {
        "pool1-2",
        "thread1",
        "process1",
    }
    assert_own(alone, watched, is_cut=True)
