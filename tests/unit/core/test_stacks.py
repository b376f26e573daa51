"""Where ranks were, by the stacks of faulthandler and by tracebacks."""

import pytest

from hpml_jobs.core.stacks import (
    Activity,
    rank_position,
    traceback_position,
)

ENTRY = "/x/hpml_jobs/worker/__main__.py"
EPOCH = "/x/hpml_jobs/worker/epochs.py"
SITE = "/venv/lib/python3.11/site-packages"
TORCH = f"{SITE}/torch"
NET = "/home/me/net.py"


def dump(*frames, thread="Current thread"):
    """One thread, innermost frame first: (file, line, function)."""
    lines = [f'  File "{file}", line {line} in {name}' for file, line, name in frames]
    return "\n".join([f"{thread} 0x00007f (most recent call first):", *lines, ""])


def rank(*frames):
    return dump(*frames, (EPOCH, 140, "_run"), (ENTRY, 20, "main"))


LOADING = (f"{TORCH}/utils/data/dataloader.py", 1466, "_get_data")
LOADER_WORKER = (f"{TORCH}/utils/data/_utils/worker.py", 375, "_worker_loop")
BACKWARD = (f"{TORCH}/autograd/graph.py", 1072, "_engine_run_backward")
ALL_REDUCE = (
    (f"{TORCH}/distributed/distributed_c10d.py", 3019, "all_reduce"),
    (f"{TORCH}/distributed/c10d_logger.py", 83, "wrapper"),
)
DDP = (f"{TORCH}/nn/parallel/distributed.py", 1643, "forward")
CASES = {
    "user code": (
        rank((NET, 7, "forward"), DDP),
        Activity.CODE,
        f"in {NET}, line 7, in forward",
    ),
    "user code that calls a library": (
        rank(
            (f"{TORCH}/nn/modules/linear.py", 134, "forward"), (NET, 7, "forward"), DDP
        ),
        Activity.CODE,
        f"in {NET}, line 7, in forward",
    ),
    "loader with a worker in user code": (
        rank(LOADING) + rank((NET, 9, "__getitem__"), LOADER_WORKER, LOADING),
        Activity.DATA,
        f"waiting for its data loader, whose worker was in {NET}, line 9, in __getitem__",
    ),
    "data loaded by the rank itself": (
        rank((NET, 9, "__getitem__"), LOADING),
        Activity.DATA,
        f"loading data in {NET}, line 9, in __getitem__",
    ),
    "backward": (
        rank(BACKWARD),
        Activity.BACKWARD,
        "in backward() or waiting in its collectives",
    ),
    "collective of this program": (
        rank(
            *ALL_REDUCE, ("/x/hpml_jobs/worker/strategies.py", 79, "reduce_gradients")
        ),
        Activity.COLLECTIVE,
        "waiting in all_reduce",
    ),
    "collective of user code": (
        rank(*ALL_REDUCE, (NET, 12, "forward"), DDP),
        Activity.COLLECTIVE,
        f"waiting in all_reduce ({NET}, line 12, in forward)",
    ),
}


@pytest.mark.parametrize(("text", "activity", "words"), CASES.values(), ids=CASES)
def test_stack_of_rank_gives_its_activity(text, activity, words):
    assert rank_position(text) == (activity, words)


def test_last_of_several_dumps_counts():
    early, late = rank((NET, 7, "forward")), rank((NET, 8, "forward"))
    assert rank_position(early + late).text.endswith("line 8, in forward")


def test_rank_that_writes_its_error_has_no_position():
    reporting = dump(
        ("/usr/lib/python3.11/linecache.py", 137, "updatecache"),
        (ENTRY, 55, "_report"),
        (ENTRY, 24, "main"),
    )
    assert rank_position(reporting) is None
    assert rank_position(rank(BACKWARD) + reporting).activity is Activity.BACKWARD


def test_other_threads_do_not_count():
    thread = dump(
        (NET, 7, "poll"), ("/lib/threading.py", 1002, "_bootstrap"), thread="Thread"
    )
    assert rank_position(thread) is None
    assert rank_position(thread + rank(BACKWARD)).activity is Activity.BACKWARD


@pytest.mark.parametrize(
    "text", ["", "no stack", "Current thread 0x1 (most recent call first):"]
)
def test_text_without_stack_gives_no_position(text):
    assert rank_position(text) is None
    assert traceback_position(text) is None


def test_traceback_gives_its_innermost_place():
    text = f'''Traceback (most recent call last):
  File "{ENTRY}", line 22, in main
    _measure(folder, attempt)
  File "{EPOCH}", line 144, in _run
    loss.backward()
  File "{BACKWARD[0]}", line 1072, in _engine_run_backward
RuntimeError: Timed out waiting 20000ms for recv operation to complete'''
    assert traceback_position(text).activity is Activity.BACKWARD
