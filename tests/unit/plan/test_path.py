"""path=auto: the keys that it becomes by type of GPU."""

import pytest

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.strategies import Loader
from hpml_jobs.plan.path import RESIDENT_BYTES
from hpml_jobs.plan.resolve import make_plan
from hpml_jobs.plan.sweep import expand
from hpml_jobs.submit.explain import preview_of
from hpml_jobs.submit.selection import select
from tests.unit.plans import plan_of

INVENTORY = "gh001|gpu:{gpu}:4|96|380000|main\n"


@pytest.fixture
def planned(slurm):
    """The cells of words on a cluster of one type of GPU, and the notes."""

    def plan(gpu, *words):
        slurm.set_output("sinfo", INVENTORY.format(gpu=gpu))
        notes = []
        sweep = expand(["cluster=slurm", f"gpu_type={gpu}", *words], multirun=True)
        return make_plan(sweep, fetch=False, notify=notes.append).cells, notes

    return plan


RESNET = "workload=resnet18_cifar10"


@pytest.mark.parametrize(
    ("gpu", "words", "label", "loader"),
    [
        ("h100", [], "bf16, channels_last", Loader.DEVICE),
        ("v100", [], "fp16, channels_last", Loader.DEVICE),
        ("h100", ["precision=tf32"], "tf32, channels_last", Loader.DEVICE),
        ("h100", ["channels_last=false"], "bf16", Loader.DEVICE),
        ("h100", ["loader=workers"], "bf16, channels_last", Loader.WORKERS),
        ("h100", ["loader_workers=3"], "bf16, channels_last", Loader.WORKERS),
    ],
)
def test_auto_is_the_keys_that_the_gpu_and_the_cell_allow(
    planned, gpu, words, label, loader
):
    (cell,), notes = planned(gpu, RESNET, "path=auto", *words)
    assert (cell.cell.path.label, cell.cell.loader) == (label, loader)
    assert any(note.startswith(f"path=auto on {gpu}: ") for note in notes)


@pytest.mark.whole
def test_auto_is_the_cell_that_the_keys_give_by_hand(planned):
    (by_auto,), _ = planned("h100", RESNET, "path=auto")
    by_hand, _ = planned(
        "h100", RESNET, "precision=bf16", "channels_last=true", "loader=device"
    )
    assert by_auto.slug == by_hand[0].slug


def test_plan_shows_path_auto_as_the_origin_of_its_keys(slurm):
    slurm.set_output("sinfo", INVENTORY.format(gpu="h100"))
    words = (
        "workload=synthetic",
        "workload.images=512",
        "gpu_type=h100",
        "channels_last=true",
    )
    plan = plan_of(*words, "path=auto")
    rows = {row.key: row for row in preview_of(select(plan)).values}
    for key, value in (
        ("precision", "bf16"),
        ("loader", "device"),
        ("loader_workers", "0"),
    ):
        assert (rows[key].value, rows[key].origin) == (value, "path=auto")
    assert rows["channels_last"].origin == "command line"
    assert rows["threads"].origin == "conf/config.yaml"


def test_data_beyond_the_limit_stay_with_workers(planned):
    images = RESIDENT_BYTES / (3 * 32 * 32)
    synthetic = ("workload=synthetic", "path=auto")
    for number, loader in ((images, Loader.DEVICE), (images + 1, Loader.WORKERS)):
        (cell,), _ = planned("h100", *synthetic, f"workload.images={int(number)}")
        assert cell.cell.loader is loader


def test_unknown_gpu_needs_a_precision(planned):
    with pytest.raises(
        UsageError, match=r"precision of the GPU \(volta\) is not known; give prec"
    ):
        planned("volta", RESNET, "path=auto")
    (cell,), _ = planned("volta", RESNET, "path=auto", "precision=fp16")
    assert cell.cell.path.channels_last


def test_auto_on_cpus_is_plain(planned):
    words = (RESNET, "device=cpu")
    (cell,), notes = planned("h100", *words, "path=auto")
    assert cell.slug == planned("h100", *words)[0][0].slug
    assert "path=auto with device=cpu is path=plain" in notes
