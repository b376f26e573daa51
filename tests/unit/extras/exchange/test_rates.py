"""Import of rates: times of an epoch, or of equal work where nobody reported an epoch."""

import re
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.strategies import Baseline
from hpml_jobs.extras.exchange.csv_records import Rules, read_timings
from hpml_jobs.report.choose.rules import Wish
from hpml_jobs.report.choose.table import choices
from hpml_jobs.report.files import csv_tables
from hpml_jobs.report.frame.numbers import DASH
from hpml_jobs.report.report import ReportOptions, make_report
from hpml_jobs.study.snapshot import read_snapshots
from hpml_jobs.study.study import Study
from tests.unit.cli.test_invalid_input import last_line

TXL = {16: 69_070, 32: 136_960, 64: 270_120, 128: 514_500}
"""Transformer-XL large fp32, batch 4: tokens/s by GPUs (NVIDIA, DeepLearningExamples)."""

RESNET50 = {1: 219, 2: 422, 4: 852, 8: 1734}
"""ResNet-50, batch 64: images/s by P100s (tensorflow/docs, benchmarks)."""

PAGE = Path(__file__).parents[4] / "docs/share.md"


def csv_of(rates, batch, unit):
    rows = [f"{gpus},{batch},{rate},{unit}" for gpus, rate in rates.items()]
    return "\n".join(["gpus,batch,rate,unit", *rows, ""])


def records_of(text, **rules):
    return read_timings(text.encode(), "rates.csv", Rules(**rules))


def imported(text, *words):
    Path("rates.csv").write_text(text)
    assert run(["import", "rates.csv", "study=rates", *words]) == 0
    return Study(Path("outputs") / "rates")


def group_of(study, baseline=Baseline.SINGLE):
    options = ReportOptions(baseline=baseline)
    (group,) = make_report(
        study.name, read_snapshots(study.cells()), (), options
    ).groups
    return group


def table_of(group, label):
    return next(table for table in group.tables if table.label == label)


def has_a_number(table):
    texts = [text for line in table.lines for text in line.texts]
    return not texts or any(text != DASH for text in texts)


# ---- numbers, by hand ----


def test_tokens_from_16_gpus_scale_from_16(working_folder, capsys):
    """Speedup is rate(N) / rate(16), efficiency this x 16 / N; the time is of 1e6 tokens."""
    group = group_of(imported(csv_of(TXL, 4, "tokens/s")), Baseline.SMALLEST)
    assert capsys.readouterr().out.endswith(
        "next:\nhpml-jobs collect rates baseline=smallest\n"
    )
    for row in group.source.rows:
        assert row.timing.epoch_s == pytest.approx(1e6 / TXL[row.gpus])
        assert row.speedup == pytest.approx(TXL[row.gpus] / 69_070)
        assert row.scaling.efficiency == pytest.approx(
            TXL[row.gpus] / 69_070 * 16 / row.gpus
        )
        assert row.timing.samples / row.timing.epoch_s == pytest.approx(TXL[row.gpus])
        assert (row.timing.step_s, row.timing.iterations) == (None, None)
    assert all(has_a_number(table) for table in group.tables)


def test_images_on_one_to_eight_gpus_scale_from_one(working_folder):
    """A step is N x 64 / rate, so weak efficiency and efficiency are the same."""
    group = group_of(imported(csv_of(RESNET50, 64, "images/s")))
    for row in group.source.rows:
        speedup = RESNET50[row.gpus] / 219
        assert row.speedup == pytest.approx(speedup)
        assert row.timing.step_s == pytest.approx(row.gpus * 64 / RESNET50[row.gpus])
        assert row.scaling.weak_efficiency == pytest.approx(speedup / row.gpus)
    assert group.suggestion == ""
    assert all(has_a_number(table) for table in group.tables)


def test_given_samples_make_the_time_an_epoch(working_folder):
    study = imported(csv_of(RESNET50, 64, "images/s"), "samples=1281167")
    group = group_of(study)
    by_gpus = {row.gpus: row.timing for row in group.source.rows}
    assert by_gpus[1].epoch_s == pytest.approx(1_281_167 / 219)
    # each of 4 has 320,292 images
    assert by_gpus[4].epoch_s == pytest.approx(1_281_168 / 852)
    assert by_gpus[4].iterations == 5_005
    assert by_gpus[4].work is None
    (choice,) = choices(read_snapshots(study.cells()), Wish(epochs=90), None, ())
    assert "90 epochs take" in choice.table.answer


def test_seconds_per_iteration_are_those_of_all_gpus():
    one, four = records_of(
        "gpus,batch,rate\n1,32,0.20\n4,32,0.25\n", unit="s/iteration"
    )
    assert one.epoch_s == pytest.approx(1e6 / (32 / 0.20))
    assert four.epoch_s == pytest.approx(1e6 / (4 * 32 / 0.25))
    assert (one.step_s, four.step_s) == (0.20, 0.25)
    assert four.cell.workload.samples_name == "samples"


def test_rates_and_epochs_of_a_model_are_other_workloads():
    """The time of 1,000,000 images is never compared with an epoch."""
    (rate,) = records_of("gpus,batch,rate\n1,32,200\n", unit="images/s")
    (epoch,) = records_of("gpus,batch,epoch_s\n1,32,200\n")
    assert rate.cell.workload != epoch.cell.workload
    (known,) = records_of("gpus,batch,rate,samples\n1,32,200,50000\n", unit="images/s")
    (epoch,) = records_of("gpus,batch,epoch_s,images\n1,32,200,50000\n")
    assert known.cell.workload == epoch.cell.workload
    assert known.epoch_s == 250.0


def test_rate_of_one_gpu_is_multiplied():
    """Ratios are those of 4 x 200 and 210 images/s."""
    text = csv_of({1: 210, 4: 200}, 32, "images/s")
    one, four = records_of(text, rate_is_per_gpu=True)
    assert one.epoch_s / four.epoch_s == pytest.approx(4 * 200 / 210)
    assert four.step_s == pytest.approx(32 / 200)
    assert (four.imported.rate, four.imported.rate_is_per_gpu) == (200, True)


def test_gpus_per_node_make_the_nodes_of_a_row():
    text = "gpus,batch,rate,gpus_per_node\n4,32,400,8\n16,32,1500,8\n24,32,1600,8\n"
    records = records_of(text, unit="images/s")
    assert [record.cell.nodes for record in records] == [1, 2, 3]
    assert [record.imported.gpus_per_node for record in records] == [8, 8, 8]
    assert records == records_of(
        text.replace(",8\n", ",\n"), unit="images/s", gpus_per_node=8
    )


# ---- words ----


def test_more_gpus_than_a_node_has_are_named(working_folder, capsys):
    imported(csv_of(TXL, 4, "tokens/s"))
    assert (
        "line 5: 128 GPUs count as 1 node; give gpus_per_node= or a column nodes"
        in (capsys.readouterr().err)
    )
    imported(csv_of(TXL, 4, "tokens/s"), "gpus_per_node=16")
    assert "count as" not in capsys.readouterr().err


def test_no_table_claims_an_epoch_that_nobody_measured(working_folder):
    group = group_of(imported(csv_of(RESNET50, 64, "images/s")))
    for table in group.tables:
        heads = [
            head for block in table.blocks for head in (block.head, *block.columns)
        ]
        said = " ".join(
            [table.title, table.answer, *table.caption, *table.notes, *heads]
        )
        said = said.replace("Equal epochs are not equal training", "")
        assert "epoch" not in said.replace("images per epoch not reported", ""), (
            table.label
        )
    assert (
        "Time: seconds of 1,000,000 images" in table_of(group, "table1-ddp").caption[0]
    )


def test_choose_asks_in_tokens_and_refuses_epochs(working_folder, capsys):
    imported(csv_of(TXL, 4, "tokens/s"))
    capsys.readouterr()
    assert run(["choose", "rates"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "1.944 s per 1,000,000 tokens, 514,500 tokens/s" in out
    assert run(["choose", "rates", "epochs=3"]) == 1
    assert "epochs=3: the tokens of an epoch of imported are not reported" in last_line(
        capsys
    )


def test_import_says_of_what_rate_and_batch_are(working_folder, capsys):
    imported(csv_of(TXL, 4, "tokens/s"))
    said = capsys.readouterr().err
    assert (
        "rate is of all GPUs together (rate_of=all); if it is of one GPU, give rate_of=gpu"
        in said
    )
    assert "batch is that of one GPU (batch_is=per_gpu)" in said
    assert (
        "an unknown number of tokens per epoch (times are those of 1,000,000 tokens)"
        in said
    )
    assert "no residual; baseline=smallest compares with 16 GPUs" in said


def test_rate_that_does_not_grow_is_named(working_folder, capsys):
    imported(csv_of({1: 210, 2: 205, 4: 200}, 32, "images/s"))
    said = capsys.readouterr().err
    assert (
        "line 4: the rate of imported on 4 GPUs is only 0.95 times that on 1: if rates"
        in said
    )
    imported(csv_of({1: 210, 2: 205, 4: 200}, 32, "images/s"), "rate_of=gpu")
    said = capsys.readouterr().err
    assert "rate is of one GPU (rate_of=gpu); it was multiplied by gpus" in said
    assert "is only" not in said


def test_page_claims_no_epoch_either(working_folder, capsys):
    imported(csv_of(TXL, 4, "tokens/s"))
    capsys.readouterr()
    assert run(["report", "rates", "baseline=smallest"]) == 0
    page = Path("outputs/rates/report/report.md").read_text()
    answer = page.partition("\n## Answer")[2].partition("\n## ")[0]
    assert "1.944 s per 1,000,000 tokens, 514,500 tokens per second" in answer
    assert "1,000,000 tokens take 14.48 s" in answer
    assert "7.45 speedup over 16 GPUs" in answer
    assert "epoch" not in answer.replace("tokens per epoch not reported", "")


def test_sheets_and_record_keep_their_names_and_say_what_times_are_of(
    working_folder, capsys
):
    study = imported(csv_of(RESNET50, 64, "images/s"))
    report = make_report(study.name, read_snapshots(study.cells()), ())
    sheets = csv_tables.sheets(report)
    for name in ("q1.csv", "scaling.csv", "choice.csv", "cells.csv"):
        header = sheets[name].splitlines()[0].split(",")
        assert "epoch_s" in header
        assert "time_s" not in header
    lines = (line.split(",") for line in sheets["scaling.csv"].splitlines()[:2])
    row = dict(zip(*lines, strict=True))
    assert (row["epoch_s"], row["work_samples"]) == (str(1e6 / 219), "1000000")
    capsys.readouterr()
    assert run(["record", "rates", "ddp-2gpu*", "--all"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^ *epoch_s +2369.7 s$", shown, re.MULTILINE)
    assert re.search(r"^ *work_samples +1,?000,?000$", shown, re.MULTILINE)


# ---- faults ----


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "gpus,batch,rate\n1,32,9",
            "line 2: unit is missing: add a column unit or unit= (images/s",
        ),
        (
            "gpus,batch,rate,unit\n1,32,9,img/s",
            "line 2: unit=img/s: choose one of images/s, samp",
        ),
        ("gpus,batch,rate,unit\n1,32,9,image/s", "did you mean images/s?"),
        (
            "gpus,batch,rate,unit\n1,32,0,images/s",
            "line 2: rate=0: must be more than 0",
        ),
        ("gpus,batch,rate,unit\n1,32,,images/s", "line 2: rate is missing"),
        (
            "gpus,batch,rate,unit\n1,32,1e-9,images/s",
            "line 2: rate=1e-09 images/s: 1,000,000 sam",
        ),
        (
            "gpus,batch,epoch_s,rate,unit\n1,32,,,images/s",
            "line 2: epoch_s or rate is missing",
        ),
        (
            "gpus,batch,epoch_s,rate\n1,32,5,9",
            "line 2: rate and epoch_s: give one of them",
        ),
        (
            "gpus,batch,rate,train_s\n1,32,5,9",
            "line 2: rate and train_s: give one of them",
        ),
        (
            "gpus,batch,epoch_s,unit\n1,32,5,images/s",
            "line 2: unit=images/s is of a rate: add",
        ),
        (
            "gpus,batch,epoch_s,images,samples\n1,32,5,64,64",
            "line 2: images and samples are the s",
        ),
        (
            "gpus,batch,rate,unit\n1,32,9,images/s\n2,32,17,samples/s",
            "line 3: unit=samples/s where line 2 of the same series has unit=images/s: give all",
        ),
        (
            "gpus,batch,epoch_s,rate,unit\n1,32,9,,\n2,32,,17,images/s",
            "line 3: unit=images/s where line 2 of the same series has epoch_s",
        ),
        (
            "gpus,batch,rate,unit,nodes,gpus_per_node\n16,32,9,images/s,1,8",
            "line 2: gpus=16 do not fit on nodes=1 with gpus_per_node=8",
        ),
        (
            "gpus,batch,rate,unit\n1,32,-9,images/s",
            "line 2: rate=-9: must be more than 0",
        ),
        (
            "gpus,batch,rate,unit,gpus_per_node\n1,32,9,images/s,0",
            "line 2: gpus_per_node=0: must be more than 0",
        ),
        (
            "gpus,batch\n1,32",
            "column epoch_s is missing; required are gpus, batch, epoch_s (or r",
        ),
    ],
)
def test_bad_rates_are_named_by_line_and_column(text, message, working_folder, capsys):
    Path("rates.csv").write_text(text)
    assert run(["import", "rates.csv", "study=rates"]) == 1
    error = last_line(capsys)
    assert "rates.csv" in error
    assert message in error
    assert not Path("outputs").exists()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("unit=images", "unit=images: choose one of images/s"),
        ("rate_of=one", "rate_of=one: choose one of all, gpu"),
        ("samples=5 images=5", "images= and samples= are the same: give one of them"),
    ],
)
def test_bad_keys_of_rates_are_wrong_usage(word, message, working_folder, capsys):
    assert run(["import", "rates.csv", "study=rates", *word.split()]) == 2
    assert message in last_line(capsys)


# ---- the page ----


def test_page_shows_the_tables_of_its_own_rates(working_folder):
    section = PAGE.read_text().partition("\n### Rates\n")[2].partition("\n### ")[0]
    (text,) = re.findall(r"^```\n(model,.*?)^```", section, re.MULTILINE | re.DOTALL)
    Path("rates.csv").write_text(text)
    commands = re.findall(r"^hpml-jobs (.*)$", section, re.MULTILINE)
    for command in commands:
        assert run(command.split()) == 0
    (table,) = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table in Path("outputs/txl/report/tables.md").read_text()
