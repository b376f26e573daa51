"""Command predict on studies of records, as a user types it."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cluster import Cluster, Isolate
from hpml_jobs.core.record import Facts
from hpml_jobs.core.strategies import Device
from hpml_jobs.extras.predict.question import Question
from hpml_jobs.extras.predict.table import forecasts
from hpml_jobs.study.snapshot import read_snapshots
from hpml_jobs.study.study import Study
from tests.unit.builders import a_cell, a_record
from tests.unit.study_builder import StudyBuilder

PER_NODE = "cluster.gpus_per_node=8"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """A study of three sizes at two batches, inside a node."""
    folder = tmp_path_factory.mktemp("outputs")
    builder = StudyBuilder(folder / "mine")
    for gpus, epoch_s in ((1, 8.0), (2, 4.4), (4, 2.3)):
        for batch in (64, 128):
            cell = a_cell(gpus=gpus, batch=batch)
            builder.with_record(a_record(cell, f"10{gpus}_{batch}.r0", epoch_s))
    builder.study.add_command("hpml-jobs -m gpus=1,2,4 batch=64,128 study=mine")
    return folder


@pytest.fixture
def study(laptop, outputs):
    """The study in the current folder, to be read only."""
    Path("outputs").symlink_to(outputs)


def output_of(capsys, *words):
    assert run([*words]) == 0
    return capsys.readouterr().out


def document_of(capsys, *words):
    return json.loads(output_of(capsys, *words, "--json"))


def fault_of(capsys, *words):
    code = run([*words])
    return code, capsys.readouterr().err.strip()


def test_predict_prints_answer_errors_and_null(study, capsys):
    shown = " ".join(
        output_of(capsys, "predict", "mine", "gpus=8", "batch=128", PER_NODE).split()
    )
    assert "8 GPUs at batch 128 per GPU (ddp):" in shown
    assert "no change" in shown
    assert (
        "No cell could be left out to measure its error: the band is that of published"
        in shown
    )


def test_predict_json_has_bands_and_left_out_cells(laptop, outputs, capsys):
    shutil.copytree(outputs, "outputs")
    builder = StudyBuilder(Path("outputs") / "mine")
    for batch in (64, 128):
        builder.with_record(
            a_record(a_cell(gpus=8, batch=batch), f"108_{batch}.r0", 1.2)
        )
    (group,) = document_of(
        capsys, "predict", "mine", "gpus=16", "cluster.gpus_per_node=16"
    )["groups"]
    assert [(p["gpus"], p["batch"]) for p in group["predictions"]] == [
        (16, 64),
        (16, 128),
    ]
    for prediction in group["predictions"]:
        assert prediction["low_s"] < prediction["step_s"] < prediction["high_s"]
        points = prediction["error"]["points"]
        assert {point["gpus"] for point in points} == {8}
        errors = [abs(p["model_s"] / p["step_s"] - 1) for p in points]
        assert prediction["error"]["model"]["mean"] == pytest.approx(
            sum(errors) / len(errors)
        )
    assert len(group["measured"]) == 8


def test_predict_across_nodes_prints_the_command_of_one_cell(study, capsys):
    code = run(["predict", "mine", "gpus=32", "batch=64", PER_NODE, "--json"])
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    (refusal,) = group["not_predicted"]
    assert (code, group["predictions"]) == (1, [])
    assert refusal["command"] == "hpml-jobs gpus=16 batch=64 nodes=2 study=mine"
    assert "no cell on two nodes is measured" in refusal["reason"]


@pytest.mark.whole
@pytest.mark.parametrize(("isolate", "charged_gpus"), [("serial", 3), ("exclusive", 8)])
def test_predict_shows_what_an_epoch_is_charged(isolate, charged_gpus, laptop, capsys):
    """Exclusive nodes are charged whole."""
    rows = (
        "gpus,gpus_per_node,batch,epoch_s,gpu_model\n1,8,64,20,v100\n4,8,64,5.4,v100\n"
    )
    Path("table.csv").write_text(rows)
    output_of(capsys, "import", "table.csv", "study=table", "images=50000")
    cluster = Cluster(name="slurm", isolate=Isolate(isolate), gpu_types={"v100": 8})
    snapshots = read_snapshots(Study(Path("outputs") / "table").cells())
    (made,) = forecasts(snapshots, Question(gpus=(3,)), cluster, ())
    (prediction,) = made.document["predictions"]
    assert prediction["epoch_s"] == pytest.approx(50_000 / prediction["samples_per_s"])
    assert prediction["charged_gpu_s"] == pytest.approx(
        charged_gpus * prediction["epoch_s"]
    )
    (line,) = made.table.lines
    assert f"{prediction['charged_gpu_s']:.1f}" in line.texts


def test_predict_of_two_hardware_groups_predicts_each(laptop, outputs, capsys):
    shutil.copytree(outputs, "outputs")
    study = StudyBuilder(Path("outputs") / "mine")
    for gpus, epoch_s in ((1, 4.0), (2, 2.2)):
        cell = a_cell(gpus=gpus, batch=64, gpu_type="h200")
        facts = Facts(torch="2.14.1", gpu_model="NVIDIA H200")
        study.with_record(a_record(cell, f"20{gpus}_0.r0", epoch_s, facts=facts))
    groups = document_of(capsys, "predict", "mine", "gpus=8", PER_NODE)["groups"]
    assert sorted(len(group["predictions"]) for group in groups) == [1, 2]
    assert len({group["conditions"]["GPU model"] for group in groups}) == 2

    words = ("gpus=4", "cluster.gpus_per_node=2")  # of one group only
    assert run(["predict", "mine", *words, "--json"]) == 1
    groups = json.loads(capsys.readouterr().out)["groups"]
    by_refusals = {len(group["not_predicted"]): group for group in groups}
    assert by_refusals[1]["not_predicted"][0]["nodes"] == 2
    assert by_refusals[0]["notes"] == [
        "not predicted: cluster.gpus_per_node=2: 4 on a node were measured"
    ]


def test_predict_without_several_gpus_names_the_cell_it_needs(laptop, capsys):
    builder = StudyBuilder(Path("outputs") / "mine").with_record(
        a_record(a_cell(gpus=1))
    )
    builder.study.add_command("hpml-jobs gpus=1 batch=512 study=mine")
    assert run(["predict", "mine"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "hpml-jobs gpus=2 batch=512 study=mine" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gpus=20", PER_NODE], "does not divide over 3 nodes of 8; use gpus=24"),
        (["gpus=32", "nodes=2", PER_NODE], "a node has 8; use nodes=4"),
        (
            ["nodes=4", PER_NODE],
            "nodes=4: no cell on so many nodes was measured; add gpus=",
        ),
        (["cluster.gpus_per_node=2", "gpus=8"], "4 on a node were measured"),
        (["strategy=fsdp"], "strategy=fsdp was not measured on several GPUs"),
        (["strategy=fsdp"], "hpml-jobs gpus=2 batch=64 strategy=fsdp study=mine"),
    ],
)
def test_predict_refuses_what_no_cell_can_be(words, message, study, capsys):
    code, fault = fault_of(capsys, "predict", "mine", *words)
    assert code == 2
    assert message in fault
    assert len(fault.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gpu=8"], "did you mean gpus=?"),
        (["gpus=8,0"], "gpus=0: use 1 or more"),
        (
            ["gpus=1,8"],
            "gpus=1: 2 or more are predicted; one is measured",
        ),
        (["batch=-32"], "batch=-32: use 1 or more"),
        (["gpus=2048"], "gpus=2048: at most 1024 are predicted"),
        (["gpus=20", "nodes=3"], "does not divide over nodes=3; use gpus=21"),
        (["strategy=dpp"], "did you mean d"),
        (
            ["strategy=single"],
            "strategy=single: it has one GPU, 2 or more are predicted",
        ),
        (
            ["link_gb_per_s=25"],
            "link_gb_per_s=25: this key is gone, because a network is measured",
        ),
        (["other_network=true"], "measure a cell on two nodes (nodes=2);"),
        (
            ["sweep=nccl.csv"],
            "sweep=nccl.csv: this key is gone, because a network is measured",
        ),
        (["accumulate=1,4"], "accumulate=1,4: this key is gone, because all measured"),
        (["accumulate=1,4"], "submit the study's command with accumulate=1,4"),
    ],
)
def test_predict_refuses_bad_words_in_one_line(words, message, laptop, capsys):
    code, fault = fault_of(capsys, "predict", "mine", *words)
    assert code == 2
    assert message in fault
    assert len(fault.splitlines()) == 1


def test_predict_of_measured_places_says_so(study, capsys):
    code, fault = fault_of(capsys, "predict", "mine", "gpus=4", "batch=64", PER_NODE)
    assert code == 1
    assert "every place of the question was measured" in fault


def test_predict_of_one_size_only_names_a_second_one(laptop, capsys):
    builder = StudyBuilder(Path("outputs") / "mine").with_record(
        a_record(a_cell(gpus=4))
    )
    builder.study.add_command("hpml-jobs gpus=4 batch=512 study=mine")
    assert run(["predict", "mine", "gpus=8", PER_NODE]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "one size is measured at batch 512" in shown
    assert "hpml-jobs gpus=1 batch=512 study=mine" in shown


def test_predict_of_another_batch_names_one_cell_of_it(study, capsys):
    code = run(["predict", "mine", "gpus=8", "batch=96", PER_NODE])
    shown = " ".join(capsys.readouterr().out.split())
    assert code == 1
    assert (
        "not predicted: 8 GPUs, batch 96 (ddp): nothing smaller than 8 GPUs is measured at batch "
        "96: hpml-jobs gpus=1 batch=96 study=mine"
    ) in shown


def test_predict_keeps_the_grid_that_chose_the_workload(laptop, capsys):
    builder = StudyBuilder(Path("outputs") / "mine").with_record(
        a_record(a_cell(gpus=1))
    )
    builder.study.add_command("hpml-jobs grid=gpt gpus=1,2 study=mine")
    assert run(["predict", "mine"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "gpus=2 batch=512 accumulate=1 strategy=ddp grid=gpt study=mine" in shown


def test_predict_leaves_out_processes_that_shared_cpus(laptop, capsys):
    builder = StudyBuilder(Path("outputs") / "mine")
    for gpus, epoch_s in ((1, 8.0), (2, 4.4), (4, 4.4)):
        record = a_record(
            a_cell(gpus=gpus, batch=128, device=Device.CPU), f"1{gpus}.r0", epoch_s
        )
        cpus = tuple(range(3))
        ranks = [msgspec.structs.replace(rank, affinity=cpus) for rank in record.ranks]
        builder.with_record(msgspec.structs.replace(record, ranks=tuple(ranks)))
    (group,) = document_of(capsys, "predict", "mine", "gpus=8", PER_NODE)["groups"]
    assert {place["gpus"] for place in group["measured"]} == {1, 2}
    assert any("processes shared CPUs" in note for note in group["notes"])


@pytest.mark.parametrize(("words", "is_asked"), [([], False), (["gpus=4"], True)])
def test_predict_names_no_size_beyond_the_cpus_of_the_host(
    words, is_asked, laptop, capsys
):
    builder = StudyBuilder(Path("outputs") / "mine")
    for gpus, epoch_s in ((1, 8.0), (2, 4.4)):
        cell = a_cell(gpus=gpus, batch=128, device=Device.CPU)
        record = a_record(cell, f"1{gpus}.r0", epoch_s)
        facts = msgspec.structs.replace(record.facts, cpu_count=2)
        builder.with_record(msgspec.structs.replace(record, facts=facts))
    assert run(["predict", "mine", *words]) == 1
    printed = " ".join("".join(capsys.readouterr()).split())
    assert ("4 processes on 2 nodes, batch 128" in printed) is is_asked
    sentence = "the measured host has CPUs for 2 processes: no larger size is predicted"
    assert (sentence in printed) is not is_asked
    assert "GPUs" not in printed
