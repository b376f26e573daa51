"""Training quality and quantization, on the real SLURM."""

import json

import pytest

pytestmark = pytest.mark.journey

SMALL = ("workload.data=digits", "data.limit=512", "loader_workers=0", "minutes=5")


@pytest.fixture(scope="module")
def studies(submit):
    """Three studies submitted together."""
    return {
        "treated": submit(
            *("treated", *SMALL, "-m", "workload=digits", "gpus=2", "batch=64", "protocol=lab"),
            *("epochs=3", "evaluate=true", "recipe=warmup", "recipe.reference_batch=64"),
            *("set_epoch=true,false", "cluster.isolate=off"),
        ),
        "sharded": submit(
            *("sharded", *SMALL, "-m", "workload=digits", "gpus=2", "batch=64", "protocol=lab"),
            *("strategy=ddp,zero1,fsdp", "cluster.isolate=off"),
        ),
        "integers": submit(
            *("integers", *SMALL, "grid=quantize", "workload=lenet_bias_cifar10", "batch=32"),
            *("quantize.calibration=64", "cluster.isolate=off"),
        ),
    }


def test_treated_cells_share_a_table_with_training_quality(studies, login):
    """Cells with recipes and buffer options appear in one table with their accuracy."""
    treated = studies["treated"]
    assert {state["outcome"] for state in treated.wait_until_finished().values()} == {"ok"}
    records = treated.records()
    assert {record.cell.set_epoch for record in records.values()} == {True, False}
    for record in records.values():
        for rank in record.ranks:
            orders = {epoch.order for epoch in rank.epochs}
            assert len(orders) == (3 if record.cell.set_epoch else 1)
        assert [epoch.lr for epoch in record.ranks[0].epochs][-1] == pytest.approx((0.1, 0.1))
        shares = [sum(r.epochs[n].share.samples for r in record.ranks) for n in range(3)]
        assert shares == [102, 102, 102]
    screen = login.ok("collect", "treated", "--all")
    assert "Table 4" in screen
    assert "1 of 3" in screen
    assert "3 of 3" in screen
    login.ok("report", "treated")
    report = treated.study.report
    for name in ("table4.csv", "shuffling.csv", "curves.csv", "loss.png", "accuracy.svg"):
        assert (report / name).stat().st_size > 0, name


def test_sharded_cells_train_as_ddp_and_share_a_table(studies, login):
    sharded = studies["sharded"]
    assert {state["outcome"] for state in sharded.wait_until_finished().values()} == {"ok"}
    records = {record.cell.strategy.value: record for record in sharded.records().values()}
    assert set(records) == {"ddp", "zero1", "fsdp"}
    for name, record in records.items():
        assert record.loss == pytest.approx(records["ddp"].loss, rel=1e-3), name
        held = [rank.held_elements for rank in record.ranks]
        assert held == [None, None] or sum(held) == record.model.parameters
    assert "Sharding: memory" in login.ok("collect", "sharded", "--all")


def test_quantized_network_is_measured_by_job_and_collected(studies, login):
    integers = studies["integers"]
    assert {state["outcome"] for state in integers.wait_until_finished().values()} == {"ok"}
    (record,) = integers.records().values()
    quantized = record.quantized
    assert quantized is not None
    assert quantized.bias
    assert quantized.calibration == 64
    assert [step.what for step in quantized.steps] == ["fp32", *["weights"] * 6, *["integers"] * 6]
    assert quantized.steps[0].accuracy == record.ranks[0].test_accuracy
    assert quantized.steps[1].bytes < 0.26 * quantized.steps[0].bytes
    answer = json.loads(login.ok("collect", "integers", "--json"))
    assert answer["study"] == "integers"
    screen = login.ok("collect", "integers", "--all")
    assert "int8" in screen
    login.ok("report", "integers")
    report = integers.study.report
    for name in ("quantization.csv", "weights.png", "activations.svg"):
        assert (report / name).stat().st_size > 0, name


def test_impossible_settings_are_refused_before_submission(login):
    for words, line in (
        (("gpus=2", "recipe=warmup", "epochs=1"), "epochs=1: protocol=full needs 3 or more"),
        (("gpus=2", "recipe=warmup", "recipe.warmup_epochs=9"), "warming up takes 9 epochs"),
        (("gpus=2", "sync_buffers=syncbn"), "take protocol=lab"),
        (("grid=quantize", "quantize.calibration=0"), "quantize.calibration=0"),
        (("grid=quantize", "workload=digits"), "it understands lenet, lenet_bias"),
        (("grid=quantize", "gpus=2"), "take gpus=1"),
        (("recipe=goyall",), "did you mean goyal?"),
    ):
        refused = login(*words, "cluster=local", "device=cpu", "workload.data=digits", "study=no")
        assert refused.returncode == 2, refused.stderr
        assert line in refused.stderr
        assert refused.stderr.count("\n") <= 2
