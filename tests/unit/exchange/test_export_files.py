"""Exported files: TensorBoard's by its own reader, Extra-P's by its format; the command's errors.

Extra-P, wandb and MLflow read theirs in tests/long/test_exports.py: they are too large to install
for every test run.
"""

import json
import re
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from hpml_jobs.cli.completion import exported
from hpml_jobs.cli.main import run
from hpml_jobs.exchange.to_extrap import METRICS
from hpml_jobs.report.key_numbers import key_numbers
from tests.unit.builders import RESNET, a_cell, a_record, lab_cell, lab_record
from tests.unit.report.training.test_curves import write_curves
from tests.unit.study_builder import StudyBuilder

PAGE = Path(__file__).parents[3] / "docs" / "share.md"


@pytest.fixture
def builder(laptop):
    """Three sizes, the second with a repeat and the third out of memory at a larger batch."""
    builder = StudyBuilder(Path("outputs") / "mine")
    for gpus, epoch_s in ((1, 8.0), (2, 4.4), (4, 4.0)):
        builder.with_record(a_record(a_cell(gpus=gpus, batch=128), f"10{gpus}_0.r0", epoch_s))
    builder.with_record(a_record(a_cell(gpus=2, batch=128, repeat=1), "105_0.r0", 4.6))
    return builder.with_out_of_memory(a_cell(gpus=4, batch=512))


@pytest.fixture
def no_network(monkeypatch):
    """Opening a connection is a failure of the test."""

    def refuse(*_):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def export(capsys, *words):
    code = run(["export", *words])
    text = capsys.readouterr()
    assert code == 0, text.err
    return text


def fault_of(capsys, *words):
    code = run(["export", *words])
    return code, capsys.readouterr().err.strip()


def test_tensorboard_reads_history_and_key_numbers(builder, no_network, capsys):
    slug = write_curves(builder, builder.with_record(lab_record(lab_cell(2, 512), 20.0)).slug)
    for _ in range(2):  # the second export replaces the first
        text = export(capsys, "mine", "tensorboard", "--to", "events")
    assert "exported 6 runs as event files of study mine to events" in text.out
    assert text.out.endswith("next: tensorboard --logdir events\n")
    folder = Path("events") / "mine" / slug
    assert len(list(folder.iterdir())) == 1
    read = EventAccumulator(str(folder)).Reload()
    loss = read.Scalars("iteration/loss")
    assert [event.step for event in loss] == list(range(1, 148))
    assert (loss[0].value, loss[-1].value) == (2.5, 1.5)
    assert read.Scalars("iteration/step_s")[0].value == pytest.approx(0.02)
    (epoch_s,) = read.Scalars("summary/epoch_s")
    assert epoch_s.value == 20


def test_tensorboard_has_settings_as_hyperparameters(builder, capsys):
    export(capsys, "mine", "tensorboard", "--to", "events")
    slug = builder.cells[1].slug
    content = EventAccumulator(f"events/mine/{slug}").Reload().summary_metadata
    session = content[metadata.SESSION_START_INFO_TAG].plugin_data.content
    hparams = metadata.parse_session_start_info_plugin_data(session).hparams
    assert hparams["gpus"].number_value == 2
    assert hparams["strategy"].string_value == "ddp"
    whole = EventAccumulator("events/mine").Reload().summary_metadata
    experiment = metadata.parse_experiment_plugin_data(
        whole[metadata.EXPERIMENT_TAG].plugin_data.content
    )
    assert "summary/epoch_s" in {info.name.tag for info in experiment.metric_infos}
    (gpus,) = [info for info in experiment.hparam_infos if info.name == "gpus"]
    assert [value.number_value for value in gpus.domain_discrete.values] == [1, 2, 4]


def test_extrap_has_repeats_as_values(builder, no_network, capsys):
    text = export(capsys, "mine", "extrap")
    folder = Path("outputs/mine/export/extrap")
    assert "exported 2 JSON files and 2 text files of study mine" in text.out
    document = json.loads((folder / "ddp.json").read_text())
    assert document["parameters"] == ["p"]
    assert document["measurements"]["ddp"]["epoch_s"] == [
        {"point": [1], "values": [8.0]},
        {"point": [2], "values": [4.4, 4.6]},
        {"point": [4], "values": [4.0]},
    ]
    communication = json.loads((folder / "ddp-communication.json").read_text())
    points = {
        name: [entry["point"] for entry in entries]
        for name, entries in communication["measurements"]["ddp"].items()
    }
    assert points["exchange_s"] == [[2], [4]]


def test_extrap_text_has_the_values_of_the_json(builder, capsys):
    builder.with_record(a_record(a_cell(gpus=2, batch=64), "106_0.r0", 5.0))
    export(capsys, "mine", "extrap", "--to", "files")
    document = json.loads(Path("files/ddp.json").read_text())["measurements"]["ddp"]
    lines = Path("files/ddp.txt").read_text().splitlines()
    assert lines[:4] == [
        "PARAMETER p",
        "PARAMETER b",
        "POINTS (1 128) (2 64) (2 128) (4 128)",
        "REGION ddp",
    ]
    for metric, entries in document.items():
        start = lines.index(f"METRIC {metric}") + 1
        data = [line.split() for line in lines[start : start + len(entries)]]
        assert [word for word, *_ in data] == ["DATA"] * len(entries)
        assert [[float(v) for v in values] for _, *values in data] == [
            entry["values"] for entry in entries
        ]


def test_extrap_has_the_iterations_that_predict_takes_from_rates(laptop, capsys):
    Path("rates.csv").write_text("gpus,batch,rate,unit\n1,64,142,images/s\n2,64,284,images/s\n")
    assert run(["import", "rates.csv", "study=rates"]) == 0
    export(capsys, "rates", "extrap", "--to", "files")
    lines = Path("files/ddp.txt").read_text().splitlines()
    start = lines.index("METRIC step_s")
    steps_s = [float(line.removeprefix("DATA ")) for line in lines[start + 1 : start + 3]]
    assert steps_s == pytest.approx([64 / 142, 128 / 284])


def test_extrap_batches_are_a_parameter_and_groups_are_files(builder, capsys):
    for gpus, batch in ((1, 32), (2, 32), (4, 32)):
        builder.with_record(a_record(a_cell(gpus=gpus, batch=batch), "110_0.r0", 9.0 / gpus))
    for gpus in (1, 2):
        of_resnet = a_cell(gpus=gpus, batch=128, workload=RESNET)
        builder.with_record(a_record(of_resnet, "111_0.r0", 30.0 / gpus))
    export(capsys, "mine", "extrap", "--to", "files")
    names = {path.name for path in Path("files").glob("*.json")}
    assert {"group1-ddp.json", "group2-ddp.json"} < names
    documents = [json.loads(Path("files", name).read_text()) for name in sorted(names)]
    assert ["p", "b"] in [document["parameters"] for document in documents]


def test_extrap_point_on_more_nodes_is_left_out_and_noted(builder, capsys):
    builder.with_record(a_record(a_cell(gpus=2, nodes=2, batch=128), "112_0.r0", 6.0))
    text = export(capsys, "mine", "extrap", "--to", "files")
    assert "left out: ddp, 2 GPUs on 2 nodes at batch 128 (the same point on 1 is" in text.err
    document = json.loads(Path("files/ddp.json").read_text())
    assert document["measurements"]["ddp"]["epoch_s"][1]["values"] == [4.4, 4.6]


def test_extrap_without_two_points_is_refused(laptop, capsys):
    single = a_record(a_cell(gpus=1, batch=128), "101_0.r0", 8.0)
    StudyBuilder(Path("outputs") / "mine").with_record(single)
    code, err = fault_of(capsys, "mine", "extrap")
    assert (code, "has no strategy with two sizes or batches" in err) == (1, True)


@pytest.mark.parametrize(
    ("form", "packages"),
    [
        ("wandb", "wandb"),
        ("mlflow", "mlflow-skinny sqlalchemy alembic"),
        ("tensorboard", "tensorboard"),
    ],
)
def test_missing_package_is_named_with_pip(form, packages, builder, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, f"hpml_jobs.exchange.to_{form}", raising=False)
    for name in ("wandb", "alembic", "tensorboard.compat.proto.event_pb2"):
        monkeypatch.setitem(sys.modules, name, None)
    code, err = fault_of(capsys, "mine", form)
    assert code == 1
    assert err.endswith(f": pip install {packages}")
    assert "\n" not in err
    assert not Path("outputs/mine/export").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["mine"], 2, "give a study, then wandb or mlflow or tensorboard or extrap"),
        (["mine", "csv"], 2, "give a study, then wandb"),
        (["mine", "yours", "extrap"], 2, "give a study, then wandb"),
        (["yours", "extrap"], 1, "no study yours in outputs"),
        (["empty", "extrap"], 1, "no cell of study empty has a record; hpml-jobs status empty"),
        (["mine", "extrap", "--to", "file/x"], 1, "file/x cannot be written: Not a directory"),
    ],
)
def test_export_refuses_in_one_line(words, code, message, builder, capsys):
    StudyBuilder(Path("outputs") / "empty").with_cell(a_cell())
    Path("file").write_text("")
    found, err = fault_of(capsys, *words)
    assert (found, message in err) == (code, True), err
    assert "\n" not in err


def test_words_are_completed_with_studies_and_formats(builder):
    context = SimpleNamespace(params={"outputs": Path("outputs")})
    assert exported(context, "m") == ["mine", "mlflow"]
    assert exported(context, "t") == ["tensorboard"]


def test_page_names_every_exported_number():
    listed = set(re.findall(r"`(\w+)`", PAGE.read_text().partition("\n## Export")[2]))
    lists = {"epoch_s_by_rank", "phases", "startup", "messages", "test_accuracy_by_rank"}
    texts = {"precision", "throttle_reasons", "gpu_bus_ids", "gpu_links"}
    assert {*key_numbers(a_record(a_cell()))} - lists - texts - listed == set()
    assert set(METRICS) - listed == set()
