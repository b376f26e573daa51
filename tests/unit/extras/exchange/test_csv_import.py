"""Import of timings: valid rows become records, invalid rows are named by line."""

import json
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.status.states import cell_states
from hpml_jobs.study.study import Study
from tests.unit.cli.test_invalid_input import last_line
from tests.unit.cli.test_lazy_imports import login_node

LAB = "gpus,batch,epoch_s\n1,32,48.612\n2,32,30.819\n4,32,30.822\n"
HEADER = "gpus,batch,epoch_s"


def write_csv(text, name="lab.csv"):
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())


def run_import(text, *words):
    write_csv(text)
    return run(["import", "lab.csv", "study=lab", *words])


def records_of(study="lab"):
    records = (cell.read_record() for cell in Study(Path("outputs") / study).cells())
    whole = [record for record in records if record is not None]
    return sorted(whole, key=lambda record: (record.cell.batch, record.cell.gpus))


def epoch_times(study="lab"):
    """Seconds by GPUs and batch per GPU."""
    return {(r.cell.gpus, r.cell.batch): r.epoch_s for r in records_of(study)}


LAB_TIMES = {(1, 32): 48.612, (2, 32): 30.819, (4, 32): 30.822}


# ---- records of rows ----


def test_rows_become_cells_with_records_seen_by_status(working_folder):
    assert run_import(LAB) == 0
    assert epoch_times() == LAB_TIMES
    states = cell_states(Study(working_folder / "outputs" / "lab"))
    assert {state.outcome.value for state in states} == {"ok"}
    single, pair, _ = records_of()
    assert (single.cell.strategy, pair.cell.strategy) == (Strategy.SINGLE, Strategy.DDP)
    assert pair.cell.protocol is Protocol.IMPORTED
    assert (pair.iterations, pair.samples, pair.model) == (None, None, None)
    assert (pair.cell.workload.images, pair.cell.workload.parameters) == (None, None)
    assert (pair.train_s, pair.compute_s, pair.comm_exposed_s, pair.facts) == (
        None,
    ) * 4


def test_optional_columns_are_kept_as_given(working_folder):
    columns = (
        f"{HEADER},strategy,nodes,train_s,compute_s,comm_s,repeat,parameters,images"
    )
    text = (
        f"{columns},iterations,model,gpu_model,date\n"
        "4,64,20.5,allreduce,2,19.5,15,4.5,1,9231114,40000,157,VGG-11,A100,2024-05-01\n"
    )
    assert run_import(text) == 0
    (record,) = records_of()
    cell, imported = record.cell, record.imported
    assert (cell.strategy, cell.nodes, cell.repeat) == (Strategy.ALLREDUCE, 2, 1)
    assert (cell.workload.images, cell.workload.parameters) == (40_000, 9_231_114)
    assert (record.train_s, record.compute_s, record.comm_exposed_s) == (19.5, 15, 4.5)
    assert imported is not None
    assert (imported.iterations, imported.gpu_model, imported.date) == (
        157,
        "A100",
        "2024-05-01",
    )
    assert record.facts is not None
    assert (record.facts.gpu_model, cell.gpu_type, cell.workload.name) == (
        "A100",
        "A100",
        "VGG-11",
    )


@pytest.mark.parametrize("called", ["", "single", "ddp", "dp", "none"])
def test_one_gpu_row_is_baseline_despite_strategy_column(called, working_folder):
    assert run_import(f"{HEADER},strategy\n1,32,48.612,{called}\n") == 0
    assert [record.cell.strategy for record in records_of()] == [Strategy.SINGLE]


def test_global_batch_is_divided_by_gpus_and_reported(working_folder, capsys):
    assert run_import(f"{HEADER}\n1,128,30\n4,128,12\n", "batch_is=global") == 0
    assert epoch_times() == {(1, 128): 30, (4, 32): 12}
    shown = capsys.readouterr().err
    assert "divided by gpus" in shown
    assert (
        "no gpus=1 row of imported at batch 32 per GPU: no speedup and no residual"
        in shown
    )


def test_assumptions_and_missing_values_are_reported(working_folder, capsys):
    assert run_import(f"{LAB}2,64,20\n", "images=40000") == 0
    messages = capsys.readouterr().err
    assert (
        "imported: 40,000 images per epoch, an unknown number of parameters" in messages
    )
    assert (
        "train_s is missing in every row: residual communication includes data"
        in messages
    )
    assert "no gpus=1 row of imported at batch 64" in messages


def test_iterations_contradicting_batch_are_kept_and_noted(working_folder, capsys):
    assert run_import(f"{HEADER},iterations\n4,512,15.127,98\n", "images=50000") == 0
    assert [record.iterations for record in records_of()] == [98]
    assert (
        "line 2: 98 iterations, but 4 GPUs x batch 512 need 25 for 50000 images; if batch"
        in (capsys.readouterr().err)
    )


def test_iterations_of_rows_without_them_are_given(working_folder):
    assert (
        run_import(
            f"{HEADER},iterations\n4,512,15.127,98\n2,512,20,\n", "iterations=97"
        )
        == 0
    )
    assert sorted(record.iterations for record in records_of()) == [97, 98]
    assert (
        run(["import", "lab.csv", "study=other", "iterations=97", "images=50000"]) == 0
    )
    write_csv("gpus,batch,rate,unit\n1,32,9,images/s\n", "rates.csv")
    assert run(["import", "rates.csv", "study=rates", "iterations=97"]) == 0
    assert [record.imported.iterations for record in records_of("rates")] == [None]


@pytest.mark.parametrize(
    ("model", "words", "parameters"),
    [
        ("ResNet-18", (), 11_173_962),
        ("resnet18_torchvision", (), 11_181_642),
        ("", (), None),
        ("my net", (), None),
        ("my net", ("parameters=1000",), 1000),
    ],
)
def test_model_size_is_known_given_or_none_never_the_labs(
    model, words, parameters, working_folder
):
    """A named model never gets the parameter count of the lab's ResNet-18."""
    assert run_import(f"{HEADER},model\n2,32,30,{model}\n", *words) == 0
    (record,) = records_of()
    assert (record.model.parameters if record.model else None) == parameters


def test_facts_that_are_not_given_stay_unknown(working_folder, capsys):
    assert run_import(LAB) == 0
    messages = capsys.readouterr().err
    assert "imported: an unknown number of images per epoch" in messages
    assert "an unknown number of parameters (no bandwidth is computed)" in messages
    assert run(["collect", "lab"]) == 0
    tables = (working_folder / "outputs" / "lab" / "report" / "tables.md").read_text()
    assert (
        "model not reported, parameters not reported; data and images per epoch not"
        in tables
    )
    assert (
        "no bandwidth without the number of parameters and images (or iterations)"
        in tables
    )
    assert "Iterations: the number of images is not reported." in tables
    for assumed in ("11,173,962", "44,695,848", "50,000", "not told"):
        assert assumed not in tables
    (report,) = (working_folder / "outputs" / "lab").glob("report/cells.csv")
    assert "50000" not in report.read_text()
    assert run(["record", "lab", "--all"]) == 0
    assert "50,000" not in capsys.readouterr().out


def test_given_facts_make_the_bandwidth(working_folder):
    assert run_import(LAB, "images=50000", "parameters=11173962") == 0
    assert run(["collect", "lab"]) == 0
    tables = (working_folder / "outputs" / "lab" / "report" / "tables.md").read_text()
    assert (
        "model not reported, 11,173,962 parameters; data not reported, 50,000 images"
        in tables
    )
    assert "no bandwidth without" not in tables


def test_rows_of_two_gpu_models_are_two_cells(working_folder):
    assert run_import(f"{HEADER},gpu_model\n1,32,48.6,V100\n1,32,20.1,A100\n") == 0
    assert {record.cell.gpu_type for record in records_of()} == {"V100", "A100"}


def test_repeats_are_separate_cells(working_folder):
    assert run_import(f"{HEADER},repeat\n1,32,48,0\n1,32,49,1\n") == 0
    assert {(r.cell.repeat, r.epoch_s) for r in records_of()} == {(0, 48), (1, 49)}


# ---- forms that a spreadsheet gives a file ----


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf" + LAB.encode(),
        LAB.replace("\n", "\r\n"),
        LAB.replace("\n", "\r"),
        LAB.replace(",", ";"),
        LAB.replace(",", "\t"),
        LAB.replace(",", " , "),
        LAB.replace("\n", "\n\n"),
        LAB.replace("\n", ",,\n"),
        "\n,,\n" + LAB,
        LAB.rstrip("\n"),
        LAB.upper(),
        '"gpus","batch","epoch_s"\n"1","32","48.612"\n2, "32", " 30.819 "\n4,32,3.0822e1\n',
        "epoch_s,gpus,batch\n48.612,1,32\n30.819,2,32\n30.822,4,32\n",
        LAB.encode("utf-16"),
        LAB.replace(",", "|"),
        "| gpus | batch | epoch_s |\n|-----:|---|---|\n| 1 | 32 | 48.612 |\n| 2 | 32 | 30.819 |\n"
        "| 4 | 32 | 30.822 |\n",
        "  gpus  batch  epoch_s\n     1     32   48.612\n     2     32   30.819 \n"
        "     4     32   30.822",
        "+---+---+---+\n|gpus|batch|epoch_s|\n+===+===+===+\n|1|32|48.612|\n+---+---+---+\n"
        "|2|32|30.819|\n|4|32|30.822|\n+---+---+---+\n",
        "   gpus  batch  epoch_s\n0     1     32   48.612\n1     2     32   30.819\n"
        "2     4     32   30.822\n",
        "# measured by hand, it's \"so\n" + LAB.replace("4,", "  # 3,32,x\n4,", 1),
        ",gpus,batch,epoch_s\n0,1,32,48.612\n1,2,32,30.819\n2,4,32,30.822\n",
        "gpus,batch,epoch_s\n1.0,32.0,48.612\n2.0,32.,30.819\n4.00,32.0,30.822\n",
        LAB.replace("epoch_s", "Epoch_s (s)"),
        "gpus,batch,epoch_s,job_id,host\n1,32,48.612,7,a\n2,32,30.819,8,b\n4,32,30.822,9,c\n",
    ],
    ids=[
        "BOM", "Windows", "old Mac", "semicolons", "tabs", "spaces", "blank-lines",
        "empty-columns", "blank-first", "no-last-newline", "capitals", "quotes", "order",
        "UTF-16", "pipes", "Markdown", "blanks", "box", "pandas", "comments", "index",
        "floats", "unit", "others",
    ],
)  # fmt: skip
def test_csv_dialects_of_same_rows_give_same_cells(text, working_folder):
    assert run_import(text) == 0
    assert epoch_times() == LAB_TIMES


def test_what_was_not_read_is_said_once(working_folder, capsys):
    assert (
        run_import(
            "# by hand\n" + LAB.replace("\n", ",7,a\n").replace("7,a", "job,host", 1)
        )
        == 0
    )
    assert capsys.readouterr().err.splitlines()[:2] == [
        "comments were left out: lines 1",
        "columns that were not read: job, host",
    ]


# ---- rows that cannot be believed ----

BAD_ROWS = [
    ("1,32,abc", "line 2: epoch_s=abc: expected a number"),
    ("1,32,", "line 2: epoch_s is missing"),
    (",32,9", "line 2: gpus is missing"),
    ("1,32,0", "line 2: epoch_s=0: must be more than 0"),
    ("1,32,-3", "line 2: epoch_s=-3: must be more than 0"),
    ("1,32,nan", "line 2: epoch_s=nan: expected a finite number"),
    ("1,32,inf", "line 2: epoch_s=inf: expected a finite number"),
    ("1,32,1e999", "line 2: epoch_s=1e999: expected a finite number"),
    ("1,32,4_8", "line 2: epoch_s=4_8: expected a finite number"),
    ("1,32,OOM", "line 2: epoch_s=OOM: expected a number"),
    (
        "1,32,4'800",
        "line 2: epoch_s=4'800: use a decimal point, not a comma, and no thousands",
    ),
    (
        "1,32,4 800.5",
        "line 2: epoch_s=4 800.5: use a decimal point, not a comma, and no thousand",
    ),
    ("1.5,32,9", "line 2: gpus=1.5: expected a whole number"),
    ("two,32,9", "line 2: gpus=two: expected a whole number"),
    ("0,32,9", "line 2: gpus=0: must be more than 0"),
    ("1,-32,9", "line 2: batch=-32: must be more than 0"),
    (
        "1,32,48,612",
        "line 2: 4 fields where the header names 3; for a decimal comma, write 48.612",
    ),
    ('1,32,"48,612"', "line 2: epoch_s=48,612: use a decimal point, not a comma"),
    ("1,32", "line 2: 2 fields where the header names 3"),
    ("4,12501,9", "12,500 images of one GPU (50,000 over gpus=4); take batch<=12500"),
    ('1,32,"48', "line 2: cannot be read from here on: unexpected end of data"),
    (
        "1,32,9\n1,32,9",
        "line 3: the same cell as line 2 (single gpus=1 nodes=1 batch=32); for ",
    ),
    (
        "2,32,9\n1,32,x\n2,32,9",
        "line 3: epoch_s=x: expected a number; line 4: the same cell as",
    ),
]


@pytest.mark.parametrize(
    ("rows", "message"), BAD_ROWS, ids=[rows for rows, _ in BAD_ROWS]
)
def test_invalid_row_is_named_by_line_and_writes_nothing(
    rows, message, working_folder, capsys
):
    assert run_import(f"{HEADER}\n{rows}\n", "images=50000") == 1
    error = last_line(capsys)
    assert "lab.csv: nothing was imported" in error
    assert message in error
    assert [path.name for path in working_folder.iterdir()] == ["lab.csv"]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("strategy", "dpp", "strategy=dpp: choose one of single, dp, ddp"),
        ("strategy", "single", "strategy=single with gpus=2"),
        ("nodes", "3", "gpus=2 does not divide over nodes=3"),
        ("train_s", "31", "train_s=31.0 is more than epoch_s=30.0, which contains it"),
        ("comm_s", "-1", "comm_s=-1: must be 0 or more"),
        ("compute_s", "0", "compute_s=0: must be more than 0"),
        ("repeat", "-1", "repeat=-1: must be 0 or more"),
        (
            "images",
            "30",
            "batch=32 is more than the 15 images of one GPU (30 over gpus=2)",
        ),
    ],
)
def test_invalid_optional_field_is_named_by_line(
    column, value, message, working_folder, capsys
):
    assert run_import(f"{HEADER},{column}\n1,32,48,\n2,32,30,{value}\n") == 1
    assert f"line 3: {message}" in last_line(capsys)


def test_invalid_rows_are_listed_together_at_most_ten(working_folder, capsys):
    rows = "".join(f"1,{batch},x\n" for batch in range(1, 13))
    assert run_import(f"{HEADER}\n{rows}") == 1
    error = last_line(capsys)
    assert "12 faults: line 2: " in error
    assert "line 11: epoch_s=x: expected a number; and 2 more" in error


def test_duplicate_row_error_names_distinguishing_columns(working_folder, capsys):
    assert run_import(f"{HEADER},repeat\n2,32,9,1\n2,32,9,1\n") == 1
    assert (
        "the same cell as line 2 (ddp gpus=2 nodes=1 batch=32 repeat=1)"
        in last_line(capsys)
    )
    assert run_import(f"{HEADER},strategy\n1,32,9,ddp\n1,32,9,dp\n") == 1
    assert "gpus=1 is one baseline for all strategies" in last_line(capsys)


def test_global_batch_not_divisible_by_gpus_is_named(working_folder, capsys):
    assert run_import(f"{HEADER}\n3,128,9\n", "batch_is=global") == 1
    assert "line 2: batch=128 does not divide over gpus=3" in last_line(capsys)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"",
            "lab.csv is empty; its first line must name its columns: gpus,batch,epoch_s",
        ),
        (b"\n\n", "lab.csv is empty"),
        (HEADER.encode(), "lab.csv has a header and no rows"),
        (
            b"1,32,48.612\n",
            "line 1: 1 is no name of a column; its first line must name its col",
        ),
        (b"gpu,batch,epoch_s\n", "line 1: unknown column 'gpu'; did you mean gpus?"),
        (
            b"gpus,batch,time\n",
            "column epoch_s is missing; required are gpus, batch, epoch_s (or r",
        ),
        (
            b"gpus,batch,epoch_s,node\n",
            "unknown column 'node'; did you mean nodes? Rename it, or",
        ),
        (
            b"gpus,batch,epoch_s (ms)\n",
            "unknown column 'epoch_s (ms)': convert it to the unit of epoch_s",
        ),
        (
            b"gpus,batch (global),epoch_s\n",
            "unknown column 'batch (global)'; did you mean batch?",
        ),
        (b"gpus,batch,images/s\n", "unknown column 'images/s'; did you mean rate?"),
        (
            b"step,timestamp,loss\n",
            "line 1: a history needs a column run, the name of each row's",
        ),
        (
            b",gpus,batch,epoch_s\na,1,32,4\n",
            "line 1: column 1 has no name (line 2: a): name it",
        ),
        (
            b"x" * 9_000 + b",y" * 9 + b"\n",
            "the file has " + "x" * 40 + ", y, y, y, y, y, y, y and 2",
        ),
        (b"gpus\0,batch,epoch_s\n", "lab.csv is not UTF-8 text"),
        (
            b"gpus,batch\n1,32\n",
            "line 1: column epoch_s is missing; required are gpus,",
        ),
        (b"gpus,gpus,batch,epoch_s\n", "column gpus is given 2 times"),
        (b'"gpus,batch\n1,32', "lab.csv cannot be read from here on: unexpected end"),
        (b"gpus,batch,epoch_s\n1,32,\xe9\n", "lab.csv line 2 is not UTF-8 text"),
        (LAB.encode("utf-16-le"), "lab.csv is not UTF-8 text"),
        (LAB.encode("utf-16")[:-1], "is not UTF-8 text"),
    ],
)
def test_file_with_wrong_columns_is_named(content, message, working_folder, capsys):
    assert run_import(content) == 1
    assert message in last_line(capsys)
    assert [path.name for path in working_folder.iterdir()] == ["lab.csv"]


# ---- the command line ----


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("", 2, "import needs one file, none given: import FILE.csv study=NAME"),
        ("study=x", 2, "import needs one file, none given"),
        ("a.csv b.csv study=x", 2, "import needs one file, a.csv and b.csv given"),
        ("lab.csv", 1, "lab.csv does not exist"),
        ("lab.csv stduy=x", 2, "unknown key stduy: did you mean study?"),
        ("lab.csv study=x gpus=2", 2, "unknown key gpus: keys are study, batch_is"),
        ("lab.csv study=", 2, "study= has no value"),
        ("lab.csv study=x study=y", 2, "study is given twice"),
        ("lab.csv study=../x", 2, "study='../x' is not a name"),
        (
            "lab.csv study=x batch_is=all",
            2,
            "batch_is=all: choose one of per_gpu, global",
        ),
        (
            "lab.csv study=x images=0",
            2,
            "images=0: expected a whole number of 1 or more",
        ),
        (
            "lab.csv study=x iterations=0",
            2,
            "iterations=0: expected a whole number of 1 or more",
        ),
        (
            "lab.csv study=x parameters=11M",
            2,
            "parameters=11M: expected a whole number",
        ),
        ("lab.csv study=x", 1, "lab.csv cannot be read: No such file or directory"),
        (". study=x", 1, ". cannot be read: Is a directory"),
    ],
)
def test_import_usage_error_is_one_line(words, code, message, working_folder, capsys):
    assert run(["import", *words.split()]) == code
    assert message in last_line(capsys)
    assert list(working_folder.iterdir()) == []


def test_packed_study_is_unpacked_with_tar(working_folder, capsys):
    assert run(["import", "a.tar.gz"]) == 2
    assert last_line(capsys).endswith("becomes a study by: tar xzf a.tar.gz -C outputs")


def test_a_file_to_import_needs_a_name_for_its_study(working_folder, capsys):
    (working_folder / "lab.csv").touch()
    assert run(["import", "lab.csv"]) == 2
    assert "import lab.csv: name the new study with study=NAME" in last_line(capsys)


def test_import_outputs_option_is_in_suggested_command(working_folder, capsys):
    assert run_import(LAB, "outputs=my studies") == 0
    folder = working_folder.resolve() / "my studies"
    assert f"\nhpml-jobs collect lab --outputs '{folder}'\n" in capsys.readouterr().out
    assert (working_folder / "my studies" / "lab" / "cells").is_dir()


def test_import_json_lists_imported_cells(working_folder, capsys):
    assert run_import(LAB, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["study"], len(answer["new"]), answer["removed"]) == ("lab", 3, [])


# ---- twice into one study ----


def file_contents(study="lab"):
    root = Path("outputs") / study
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_reimport_of_same_file_changes_no_byte(working_folder, capsys):
    assert run_import(LAB) == 0
    before = file_contents()
    capsys.readouterr()
    assert run_import(LAB) == 0
    assert file_contents() == before
    assert "imported 3 rows of lab.csv: 3 unchanged" in capsys.readouterr().out


def test_reimport_replaces_changed_and_removes_deleted_rows(working_folder, capsys):
    assert run_import(LAB) == 0
    capsys.readouterr()
    assert run_import(f"{HEADER}\n1,32,48.612\n2,32,30\n2,64,21\n") == 0
    assert epoch_times() == {(1, 32): 48.612, (2, 32): 30, (2, 64): 21}
    shown = capsys.readouterr().out
    assert "1 new, 1 replaced, 1 unchanged, 1 removed" in shown
    assert "removed ddp-4gpu-b32-imported-" in shown


def test_invalid_file_leaves_study_unchanged(working_folder):
    assert run_import(LAB) == 0
    before = file_contents()
    assert run_import(f"{HEADER}\n1,32,x\n") == 1
    assert file_contents() == before


def test_other_file_into_existing_import_is_refused(working_folder, capsys):
    assert run_import(LAB) == 0
    write_csv(LAB, "other.csv")
    assert run(["import", "other.csv", "study=lab"]) == 1
    assert "study lab has the timings of lab.csv; a study is one file" in last_line(
        capsys
    )


def test_import_into_measured_study_is_refused(slurm, working_folder, capsys):
    assert run(["workload=digits", "study=lab"]) == 0
    before = file_contents()
    assert run_import(LAB) == 1
    assert "study lab has measured cells (single-1gpu-b128-digits-" in last_line(capsys)
    assert file_contents() == before


def test_import_loads_no_heavy_packages(slurm, working_folder):
    write_csv(LAB)
    shown, end = login_node("import", "lab.csv", "study=lab")
    assert "imported 3 rows" in shown
    heavy = {"hydra", "omegaconf", "pandas", "numpy", "submitit", "matplotlib"}
    assert (end["code"], heavy & set(end["loaded"])) == (0, set())
    shown, _ = login_node("import", "--help")
    assert "Example: hpml-jobs import docs/published.csv study=published" in " ".join(
        shown.split()
    )
