"""Training quality and quantization, on the real SLURM."""

import json

import pytest

from hpml_jobs.core.quantization import quantized_of

pytestmark = pytest.mark.journey

SMALL = ("workload.data=digits", "data.limit=512", "loader_workers=0", "minutes=20")


@pytest.fixture(scope="module")
def studies(submit):
    """Two studies submitted together."""
    return {
        "treated": submit(
            *(
                "treated",
                *SMALL,
                "-m",
                "workload=digits",
                "gpus=2",
                "batch=64",
                "protocol=lab",
            ),
            *(
                "epochs=3",
                "evaluate=true",
                "recipe=goyal",
                "recipe.reference_batch=64",
            ),
            *("strategy=fsdp", "set_epoch=true,false", "cluster.isolate=off"),
        ),
        "integers": submit(
            *(
                "integers",
                *SMALL,
                "grid=quantize",
                "workload=lenet_bias_cifar10",
                "batch=32",
            ),
            *("quantize.calibration=64", "cluster.isolate=off"),
        ),
    }


def test_treated_cells_share_a_table_with_training_quality(studies, login):
    """Cells of a recipe, with shards and two orders of the data, share tables."""
    treated = studies["treated"]
    assert {state["outcome"] for state in treated.wait_until_finished().values()} == {
        "ok"
    }
    records = treated.records()
    assert {record.cell.set_epoch for record in records.values()} == {True, False}
    for record in records.values():
        for rank in record.ranks:
            orders = {epoch.order for epoch in rank.epochs}
            assert len(orders) == (3 if record.cell.set_epoch else 1)
        assert [epoch.lr for epoch in record.ranks[0].epochs][-1] == pytest.approx(
            (0.1, 0.1)
        )
        shares = [
            sum(r.epochs[n].share.samples for r in record.ranks) for n in range(3)
        ]
        assert shares == [102, 102, 102]
        assert (
            sum(rank.held_elements for rank in record.ranks) == record.model.parameters
        )
    screen = login.ok("collect", "treated", "--all")
    assert "Table 4" in screen
    assert "1 of 3" in screen
    assert "3 of 3" in screen
    report = treated.study.report
    names = (
        "table4.csv",
        "shuffling.csv",
        "curves.csv",
        "loss.png",
    )
    for name in names:
        assert (report / name).stat().st_size > 0, name


def test_quantized_network_is_measured_by_job_and_collected(studies, login):
    integers = studies["integers"]
    assert {state["outcome"] for state in integers.wait_until_finished().values()} == {
        "ok"
    }
    (record,) = integers.records().values()
    quantized = quantized_of(record)
    assert quantized is not None
    assert quantized.bias
    assert quantized.calibration == 64
    assert [step.what for step in quantized.steps] == [
        "fp32",
        *["weights"] * 6,
        *["integers"] * 6,
    ]
    assert quantized.steps[0].accuracy == record.ranks[0].test_accuracy
    assert quantized.steps[1].bytes < 0.26 * quantized.steps[0].bytes
    answer = json.loads(login.ok("collect", "integers", "--json"))
    assert answer["study"] == "integers"
    screen = login.ok("collect", "integers", "--all")
    assert "int8" in screen
    report = integers.study.report
    for name in ("quantization.csv", "spreads.csv"):
        assert (report / name).stat().st_size > 0, name
