"""Loaders that are read ahead, in threads, or several at once; several optimizers and passes."""

import pytest

from tests.unit.worker.observer.test_observer import roles

BATCHES, SIZE = 12, 8

SCRIPT = """
import collections, itertools, queue, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

epochs, accumulate = int(sys.argv[1]), int(sys.argv[2])
data = TensorDataset(torch.randn(96, 4), torch.randint(3, (96,)))
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def loader(size=8, number=96):
    return DataLoader(torch.utils.data.Subset(data, range(number)), size)


def loss(inputs, targets):
    return nn.functional.cross_entropy(model(inputs), targets)


def train(inputs, targets, index=0):
    loss(inputs, targets).backward()
    if index % accumulate == accumulate - 1:
        optimizer.step()
        optimizer.zero_grad()
"""

EPOCHS = """
batches = loader()
for epoch in range(epochs):
    for index, (inputs, targets) in enumerate(ahead(batches)):
        train(inputs, targets, index)
    with torch.no_grad():
        for inputs, targets in loader(4):
            loss(inputs, targets)
"""

APEX = """
class Prefetcher:
    def __init__(self, batches):
        self.batches = iter(batches)
        self.preload()

    def preload(self):
        try:
            self.following = next(self.batches)
        except StopIteration:
            self.following = None

    def next(self):
        current = self.following
        if current is not None:
            self.preload()
        return current


def ahead(batches):
    prefetcher = Prefetcher(batches)
    while (batch := prefetcher.next()) is not None:
        yield batch
"""

DEQUE = """
def ahead(batches):
    waiting, iterator = collections.deque(), iter(batches)
    waiting.extend(itertools.islice(iterator, {depth}))
    while waiting:
        yield waiting.popleft()
        waiting.extend(itertools.islice(iterator, 1))
"""

COUNTED = """
def ahead(batches):
    iterator = iter(batches)
    waiting = collections.deque(next(iterator) for _ in range(2))
    for number in range(len(batches)):
        if number < len(batches) - 2:
            waiting.append(next(iterator))
        yield waiting.popleft()
"""


@pytest.mark.parametrize("accumulate", [1, 2])
def test_epoch_ends_with_the_step_of_the_batch_that_was_read_ahead(observe, accumulate):
    record = observe(
        SCRIPT + APEX + EPOCHS, f"4 {accumulate}", gpus=1, batch=SIZE
    ).record
    assert roles(record)[:2] == ["warmup", "timed"]
    for epoch in record.ranks[0].epochs[1:]:
        assert (epoch.iterations, epoch.samples) == (
            BATCHES // accumulate,
            BATCHES * SIZE,
        )
    assert not record.facts.in_windows


TWO_STEPS = """
def train(inputs, targets, index=0):
    for _ in range(2):
        optimizer.zero_grad()
        loss(inputs, targets).backward()
        optimizer.step()


def ahead(batches):
    yield from batches
"""

WITHOUT_BATCH = {
    "counted": (COUNTED, "2", (12, 24 * SIZE)),
    "deque": (DEQUE.format(depth=5), "3", (12, 36 * SIZE)),
    "two steps with a batch": (TWO_STEPS, "1", (12, 6 * SIZE)),
}


@pytest.mark.parametrize(
    ("text", "accumulate", "timed"), WITHOUT_BATCH.values(), ids=WITHOUT_BATCH
)
def test_steps_without_a_new_batch_are_measured_in_windows(
    observe, text, accumulate, timed
):
    script = SCRIPT + text + EPOCHS
    reason = observe(script, f"4 {accumulate}", gpus=1, batch=SIZE).reason
    assert reason.startswith("the optimizer of train.py steps without a new batch")
    words = f"9 {accumulate}"
    seen = observe(script, words, gpus=1, batch=SIZE, window=(12, 12))
    window = seen.record.ranks[0].timed
    assert (window.iterations, window.samples) == timed
    # the batches of an accumulated gradient come before its first forward pass
    assert (seen.record.phases is not None) is (accumulate == "1")


BACKGROUND = """
class Background(threading.Thread):
    def __init__(self, iterator):
        super().__init__(daemon=True)
        self.iterator, self.queue = iterator, queue.Queue(2)
        self.start()

    def run(self):
        for batch in self.iterator:
            self.queue.put(batch)
        self.queue.put(None)


def ahead(batches):
    thread = Background({iterator})
    while (batch := thread.queue.get()) is not None:
        yield batch
    thread.join()
"""

EXECUTOR = """
def ahead(batches):
    iterator = iter(batches)
    {first}
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, iterator, None)
        while (batch := following.result()) is not None:
            following = pool.submit(next, iterator, None)
            yield batch
"""

IN_THREAD = {
    "thread": BACKGROUND.format(iterator="batches"),
    "executor": EXECUTOR.format(first=""),
    "all batches before the first step": DEQUE.format(depth=20),
}


@pytest.mark.parametrize("ahead", IN_THREAD.values(), ids=IN_THREAD)
def test_loader_whose_end_says_nothing_gives_windows(observe, ahead):
    script = SCRIPT + ahead + EPOCHS.replace("no_grad", "enable_grad")
    record = observe(script, "40 1", gpus=1, batch=SIZE).record
    timed = record.ranks[0].timed
    assert (timed.iterations, timed.samples) == (200, 200 * SIZE)
    assert record.facts.in_windows


def test_loader_that_a_thread_goes_on_to_read_is_refused(observe):
    ahead = EXECUTOR.format(first="yield next(iterator)")
    seen = observe(SCRIPT + ahead + EPOCHS, "4 1", gpus=1, batch=SIZE)
    assert seen.reason.startswith("a thread of train.py goes on to read the loader")


def test_window_over_epochs_of_a_loader_that_is_ahead(observe):
    script = SCRIPT + APEX + EPOCHS
    timed = (
        observe(script, "9 1", gpus=1, batch=SIZE, window=(18, 30))
        .record.ranks[0]
        .timed
    )
    assert (timed.iterations, timed.samples) == (30, 30 * SIZE)


def with_epochs(body):
    return (
        SCRIPT
        + f"""
def cycle(batches):
    while True:
        yield from batches


batches, others = loader(), loader({{size}}, {{number}})
endless = cycle(others)
for epoch in range(epochs):
{body}"""
    )


SEVERAL = {
    "zip": (
        """
    for (inputs, targets), (u, _) in zip(batches, others):
        train(inputs, targets)
""",
        (4, 20),
        5,
    ),
    "inside of the step": (
        """
    for inputs, targets in batches:
        u, _ = next(endless)
        train(inputs, targets)
""",
        (16, 96),
        BATCHES,
    ),
    "nested": (
        """
    inner = iter(others)
    for inputs, targets in batches:
        try:
            u, _ = next(inner)
        except StopIteration:
            inner = iter(others)
            u, _ = next(inner)
        train(inputs, targets)
""",
        (4, 20),
        BATCHES,
    ),
}


@pytest.mark.parametrize(
    ("body", "others", "iterations"), SEVERAL.values(), ids=SEVERAL
)
def test_samples_are_those_of_the_outermost_loader(observe, body, others, iterations):
    script = with_epochs(body).replace("{size}, {number}", "{}, {}".format(*others))
    record = observe(script, "5 1", gpus=1, batch=SIZE).record
    timed = record.ranks[0].timed
    assert (timed.iterations, timed.samples) == (iterations, iterations * SIZE)
    assert not record.facts.in_windows


STEPS = {
    "generator and judge": (
        """
maker = nn.Linear(2, 4)
making = torch.optim.Adam(maker.parameters())

def train(inputs, targets, index=0):
    made = maker(torch.randn(len(inputs), 2))
    optimizer.zero_grad()
    (model(inputs).mean() - model(made.detach()).mean()).backward()
    optimizer.step()
    making.zero_grad()
    model(made).mean().backward()
    making.step()
""",
        67,
        False,
    ),
    "generator first": (
        """
maker = nn.Linear(2, 4)
making = torch.optim.Adam(maker.parameters())

def train(inputs, targets, index=0):
    made = maker(torch.randn(len(inputs), 2))
    making.zero_grad()
    model(made).mean().backward()
    making.step()
    optimizer.zero_grad()
    (model(inputs).mean() - model(maker(torch.randn(len(inputs), 2)).detach()).mean()).backward()
    optimizer.step()
""",
        12,
        False,
    ),
    "seldom": (
        """
other = nn.Linear(4, 3)
seldom = torch.optim.SGD(other.parameters(), 0.1)

def train(inputs, targets, index=0):
    (loss(inputs, targets) + other(inputs).mean()).backward()
    optimizer.step(); optimizer.zero_grad()
    if index % 3 == 2:
        seldom.step(); seldom.zero_grad()
""",
        67,
        False,
    ),
    "two views": (
        """
def train(inputs, targets, index=0):
    optimizer.zero_grad()
    (loss(inputs, targets) + (model(inputs) - model(inputs + 0.1)).square().mean()).backward()
    optimizer.step()
""",
        67,
        True,
    ),
}

PASSES = """
batches = loader()
for epoch in range(epochs):
    for index, (inputs, targets) in enumerate(batches):
        train(inputs, targets, index)
"""

OWN_BATCHES = """
for index in range(12 * epochs):
    place = torch.randint(96, (8,))
    train(*(tensor[place] for tensor in data.tensors), index)
"""


@pytest.mark.parametrize(
    ("step", "parameters", "has_phases"), STEPS.values(), ids=STEPS
)
def test_iterations_are_those_of_the_loop(observe, step, parameters, has_phases):
    record = observe(SCRIPT + step + PASSES, "4 1", gpus=1, batch=SIZE).record
    timed = record.ranks[0].timed
    assert (timed.iterations, timed.samples) == (BATCHES, BATCHES * SIZE)
    assert record.model.parameters == parameters
    assert (record.phases is not None) is has_phases


def test_iterations_of_own_batches_are_those_of_the_loop(observe):
    step, parameters, _ = STEPS["two views"]
    own = {"gpus": 1, "batch": SIZE, "window": (6, 12)}
    record = observe(SCRIPT + step + OWN_BATCHES, "4 1", **own).record
    timed = record.ranks[0].timed
    assert (timed.iterations, timed.samples) == (BATCHES, BATCHES * SIZE)
    assert record.model.parameters == parameters
    step, *_ = STEPS["generator and judge"]
    reason = observe(SCRIPT + step + OWN_BATCHES, "4 1", **own).reason
    words = "several optimizers step in train.py, which reads no DataLoader"
    assert reason.startswith(words)


AHEAD_WITH_OTHERS = """
def cycle(batches):
    while True:
        yield from batches


batches, endless = loader(), cycle(loader(8, {number}))
for epoch in range(epochs):
    for inputs, targets in ahead(batches):
        next(endless)
        train(inputs, targets)
"""


def test_second_loader_does_not_end_the_epoch_of_one_that_is_ahead(observe):
    """It begins anew while the last batch of the first one is trained."""
    script = SCRIPT + APEX + AHEAD_WITH_OTHERS.replace("{number}", "88")
    record = observe(script, "5 1", gpus=1, batch=SIZE).record
    for epoch in record.ranks[0].epochs[1:]:
        assert (epoch.iterations, epoch.samples) == (BATCHES, BATCHES * SIZE)
    assert roles(record)[:2] == ["warmup", "timed"]
    assert not any("a later one" in text for text in record.facts.missing)


LOADED = {
    "time first": "data, 8, collate_fn=lambda items: torch.stack([x for x, _ in items], 1)",
    "short last batch": "[0.0] * 90, 8",
    "own batch_sampler": "data, batch_sampler=[range(n, n + 8) for n in range(0, 96, 8)]",
    "workers that stay": "data, 8, num_workers=2, persistent_workers=True",
    "batches of the data set": "[[torch.randn(8, 4), 0]] * 12, batch_size=None",
}
EACH = """
batches = DataLoader(ARGUMENTS)
for epoch in range(epochs):
    if epoch == 0:
        next(iter(batches))
    for _ in batches:
        train(data[:8][0], data[:8][1])
"""


@pytest.mark.parametrize("arguments", LOADED.values(), ids=LOADED)
def test_samples_are_those_that_the_loader_draws(observe, arguments):
    script = SCRIPT + EACH.replace("ARGUMENTS", arguments)
    timed = observe(script, "3 1", gpus=1, batch=SIZE).record.ranks[0].timed
    assert timed.iterations == BATCHES
    assert timed.samples == (90 if "90" in arguments else BATCHES * SIZE)


def test_batches_of_several_sizes_are_refused(observe):
    sampler = "data, batch_sampler=[range(5 + n % 3) for n in range(12)]"
    seen = observe(SCRIPT + EACH.replace("ARGUMENTS", sampler), "3 1", gpus=1, batch=6)
    assert seen.reason.startswith("the batches of train.py have 5 to 7 samples: let")


OTHER_EPOCHS = """
for epoch in range(epochs):
    for inputs, targets in loader(*(8, 64) if epoch < 2 else (SIZE, NUMBER)):
        train(inputs, targets)
"""


@pytest.mark.parametrize(
    ("size", "number", "words"),
    [
        (8, 96, "8 batches, a later one 12"),
        (12, 96, "8 samples an iteration, a later one 12"),
    ],
)
def test_epoch_of_other_batches_is_not_split(observe, size, number, words):
    other = OTHER_EPOCHS.replace("SIZE", str(size)).replace("NUMBER", str(number))
    record = observe(SCRIPT + other, "4 1", gpus=1, batch=SIZE).record
    assert roles(record) == ["warmup", "timed"]
    assert record.facts.missing[0].startswith(
        f"rank 0: phases: the timed epoch has {words}: seconds"
    )


def test_windows_are_kept_when_a_thread_reads_a_loader_after_them(observe):
    later = EPOCHS.replace("range(epochs)", "range(2)").replace(
        "ahead(batches)", "late(batches)"
    )
    thread = EXECUTOR.format(first="yield next(iterator)").replace("ahead", "late")
    script = SCRIPT + thread + EPOCHS.replace("ahead(batches)", "batches") + later
    record = observe(script, "4 1", gpus=1, batch=SIZE, stop=False).record
    assert roles(record) == ["warmup", "timed", "instrumented"]
    assert not record.facts.in_windows


TESTED_BEFORE = """
def test(batches):
    with torch.no_grad():
        for inputs, targets in batches:
            loss(inputs, targets)


batches = loader()
for inputs, targets in loader():
    train(inputs, targets)
test(batches)
for epoch in range(epochs):
    for inputs, targets in batches:
        train(inputs, targets)
"""


def test_loader_that_is_tested_before_it_is_trained_has_epochs(observe):
    record = observe(SCRIPT + TESTED_BEFORE, "3 1", gpus=1, batch=SIZE).record
    assert roles(record) == ["warmup", "timed", "instrumented"]
    assert record.ranks[0].timed.samples == BATCHES * SIZE
