"""The line on a cell's speed: what limits it, which share it is, and the key that gives more."""

import re
from math import inf

import msgspec
import pytest

from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.strategies import Loader
from hpml_jobs.plan import speed
from hpml_jobs.plan.cells import PlannedCell
from hpml_jobs.plan.resolve import make_plan
from hpml_jobs.plan.speed import IMAGES_PER_WORKER_S, speed_of
from hpml_jobs.plan.sweep import expand
from tests.unit.builders import RESNET, a_cell

INVENTORY = "gh001|gpu:{gpu}:4|96|380000|main\ngl001|gpu:l40s:4|96|380000|main\n"
GPT2 = "workload=gpt2_124m"
BF16 = ("precision=bf16", "channels_last=true", "loader=device")


@pytest.fixture
def line(slurm):
    """Return the line of a plan, or of a submission, on a cluster with this GPU and L40S."""

    def of(gpu, *words, fetch=False, begin="1 x "):
        slurm.set_output("sinfo", INVENTORY.format(gpu=gpu))
        notes = []
        workload = [] if GPT2 in words else ["workload=resnet18_cifar10"]
        sweep = expand(["cluster=slurm", f"gpu_type={gpu}", *workload, *words], multirun=True)
        make_plan(sweep, fetch=fetch, notify=notes.append)
        lines = [note for note in notes if note.startswith(begin)]
        assert len(lines) <= 1
        return "".join(lines)

    return of


@pytest.mark.parametrize(
    ("gpu", "words", "rate", "key"),
    [
        ("a100", [], "about 7,000 images/s, 37 % of the 19,000", "path=auto"),
        ("v100", [], "about 3,000 images/s, 36 % of the 8,000", "path=auto"),
        ("a100", ["precision=fp32"], "in fp32, 18 % of the 19,000", "precision=bf16"),
        (
            "h100",
            ["loader_workers=1"],
            "from 1 loader worker, 5 % of the 60,000",
            "loader=device, or about loader_workers=8,",
        ),
        ("h100", ["gpus=4", "strategy=dp"], "6,000 images/s from 8 loader workers", ""),
        ("h100", BF16, "as fast as the host launches batch=128, 36 %", "batch=512"),
        ("h100", [*BF16, "batch=32,512"], "about 60,000 images/s in bf16 (", "compile=true"),
        ("a100", [GPT2], "13,000 tokens/s, 9 % of the 150,000", "path=auto"),
        ("a100", [GPT2, *BF16[::2]], "80,000 tokens/s in bf16, 55 %", "compile=true"),
    ],
)
def test_line_has_rate_share_and_the_key_that_gives_more(line, gpu, words, rate, key):
    text = line(gpu, *words)
    assert rate in text
    assert text.endswith(f"{key} gives more")


def test_submission_has_the_line_only_where_a_key_gives_more(line):
    compiled = (GPT2, "precision=bf16", "compile=true")
    assert line("a100", *compiled).endswith("(estimates, docs/keys.md)")
    assert not line("a100", *compiled, fetch=True)
    assert line("a100", GPT2, fetch=True)


LIMITS = "+cluster.cancel_below_utilization={gh*:60,gl*:100,*:10}"


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ([*BF16, "batch=32,512"], "batch 32 on h100: about 9 % GPU .* below 60 %: use batch=512"),
        (
            ["loader_workers=1"],
            "batch 128 on h100: about 13 % .*: use loader=device, or about load",
        ),
        ([*BF16, "data.limit=500"], "batch 128 on h100: .* below 60 %: use a larger batch="),
        ([*BF16, "batch=512"], ""),
        ([GPT2], ""),
    ],
)
def test_low_utilization_has_a_line_where_the_site_cancels(line, words, remedy):
    text = line("h100", LIMITS, *words, begin="batch ")
    assert re.match(remedy, text) if remedy else not text


def test_low_utilization_has_no_line_where_no_limit_is_known(line, slurm):
    assert not line("h100", *BF16, "batch=32", begin="batch ")
    words = ("+cluster.cancel_below_utilization={gl*:50}", *BF16, "batch=32")
    assert not line("h100", *words, begin="batch ")


def test_batch_beyond_a_share_of_the_data_is_no_remedy(line):
    assert line("h100", *BF16, "data.limit=500").endswith("(estimates, docs/keys.md)")


def test_narrow_transformer_has_no_line(line):
    assert not line("a100", GPT2, "workload.width=264")


def planned(root="", **changes):
    workload = msgspec.structs.replace(RESNET, **changes)
    cell = a_cell(workload=workload, loader=Loader.WORKERS)
    return PlannedCell(CellFile(cell=cell, data_root=str(root), code_root=""), None, "")


def test_speed_of_unknown_card_or_model_is_none():
    assert speed_of(planned(), "geforce256") is None
    for change in ({"parameters": 5}, {"image_size": 64}):
        assert speed_of(planned(**change), "h200") is None


def test_workers_of_known_data_and_small_files_are_a_limit(tmp_path):
    assert speed_of(planned(), "h200").made == 2 * IMAGES_PER_WORKER_S["cifar10"]
    assert speed_of(planned(data="own:data"), "h200").made == inf
    image = tmp_path / "train" / "0" / "1.png"
    image.parent.mkdir(parents=True)
    for size, made in ((1_000, 2 * IMAGES_PER_WORKER_S["folder"]), (90_000, inf)):
        image.write_bytes(b"GIF8" + bytes(size))
        speed._are_small.cache_clear()
        assert speed_of(planned(tmp_path, data="folder"), "h200").made == made
