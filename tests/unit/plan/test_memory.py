"""The line of a plan about the memory that its cells need."""

import pytest

from hpml_jobs.checks.gpu_peaks import PEAKS, memory_gb
from hpml_jobs.plan import memory
from hpml_jobs.plan.resolve import make_plan
from hpml_jobs.plan.sweep import expand

RESNET, GPT2 = "workload=resnet18_cifar10", "workload=gpt2_124m"


@pytest.fixture
def memory_of(slurm):
    """The line about the cells of words on a V100."""

    def line(*words, fetch=False):
        notes = []
        sweep = expand(["cluster=slurm", "gpu_type=v100", *words], multirun=True)
        make_plan(sweep, fetch=fetch, notify=notes.append)
        return next((note for note in notes if note.startswith("memory: ")), None)

    return line


def test_plan_says_where_memory_ends(memory_of):
    assert memory_of(RESNET, "batch=64,512") == (
        "memory: about 2.54 GB at batch=512 with single; v100 has 32 GB, enough for about "
        "batch=7,000 (estimate, docs/keys.md)"
    )
    assert "enough for about batch=14,000" in memory_of(RESNET, "precision=fp16")


def test_cells_that_do_not_fit_are_counted(memory_of):
    line = memory_of(RESNET, "grid=ladder", "gpus=1", "data.limit=8192")
    assert line.startswith("memory: about 38.6 GB at batch=8192 with single; v100 has 32 GB")
    assert line.endswith(": 1 of 5 cells need more")


def test_submission_says_it_only_where_cells_do_not_fit(memory_of):
    assert memory_of("workload=digits", fetch=True) is None
    assert memory_of("workload=digits", "batch=5120") is not None


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["strategy=ddp"], "24.9"),
        (["strategy=ddp", "precision=fp16"], "19.3"),
        (["strategy=zero1", "precision=fp16"], "18.5"),
        (["strategy=fsdp", "precision=fp16"], "18.6"),
        (["strategy=fsdp", "precision=fp16", "reshard=false"], "18.8"),
    ],
)
def test_strategy_and_precision_decide_what_a_gpt_needs(memory_of, words, needed):
    assert f"about {needed} GB" in memory_of(GPT2, "gpus=4", "batch=16", *words)


def test_nothing_is_said_of_what_is_not_known(memory_of, monkeypatch):
    assert memory_of(RESNET, "compile=true") is None
    assert memory_of(RESNET, "device=cpu") is None
    monkeypatch.setattr(memory, "memory_gb", lambda _: None)
    assert memory_of(RESNET) is None


def test_every_card_with_a_peak_has_its_memory():
    assert all(map(memory_gb, PEAKS))
