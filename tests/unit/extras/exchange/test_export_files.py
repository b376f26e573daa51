"""Exported files: TensorBoard's by its own reader; the command's errors.

wandb and MLflow read theirs in tests/long/test_exports.py: they are too large to install
for every test run.
"""

import re
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from hpml_jobs.cli.main import run
from hpml_jobs.extras.exchange.command import studies_and_formats
from hpml_jobs.report.key_numbers import key_numbers
from tests.unit.builders import a_cell, a_record, lab_cell, lab_record
from tests.unit.study_builder import StudyBuilder
from tests.unit.training_runs import write_curves

PAGE = Path(__file__).parents[4] / "docs" / "share.md"


@pytest.fixture
def builder(laptop):
    """Three sizes, the second with a repeat and the third out of memory at a larger batch."""
    builder = StudyBuilder(Path("outputs") / "mine")
    for gpus, epoch_s in ((1, 8.0), (2, 4.4), (4, 4.0)):
        builder.with_record(
            a_record(a_cell(gpus=gpus, batch=128), f"10{gpus}_0.r0", epoch_s)
        )
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
    slug = write_curves(
        builder, builder.with_record(lab_record(lab_cell(2, 512), 20.0)).slug
    )
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


@pytest.mark.parametrize(
    ("form", "packages"),
    [
        ("wandb", "wandb"),
        ("mlflow", "mlflow-skinny sqlalchemy alembic"),
        ("tensorboard", "tensorboard"),
    ],
)
def test_missing_package_is_named_with_pip(
    form, packages, builder, monkeypatch, capsys
):
    monkeypatch.delitem(
        sys.modules, f"hpml_jobs.extras.exchange.to_{form}", raising=False
    )
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
        (
            ["mine"],
            2,
            "give a study, then wandb or mlflow or tensorboard; for other tools",
        ),
        (["mine", "csv"], 2, "give a study, then wandb"),
        (
            ["mine", "extrap"],
            2,
            "hpml-jobs collect writes CSV files, report/cells.csv with every",
        ),
        (["mine", "yours", "mlflow"], 2, "give a study, then wandb"),
        (["yours", "tensorboard"], 1, "no study yours in "),
        (
            ["empty", "tensorboard"],
            1,
            "no cell of study empty has a record (status shows why)",
        ),
        (
            ["mine", "tensorboard", "--to", "file/x"],
            1,
            "file/x cannot be written: Not a directory",
        ),
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
    assert studies_and_formats(context, "m") == ["mine", "mlflow"]
    assert studies_and_formats(context, "t") == ["tensorboard"]


def test_page_names_every_exported_number():
    listed = set(re.findall(r"`(\w+)`", PAGE.read_text().partition("\n## Export")[2]))
    lists = {
        "epoch_s_by_rank",
        "phases",
        "startup",
        "messages",
        "test_accuracy_by_rank",
    }
    texts = {"precision", "throttle_reasons", "gpu_bus_ids", "gpu_links"}
    assert {*key_numbers(a_record(a_cell()))} - lists - texts - listed == set()
