"""Import of a table of runs: rows become records; what is no such table is refused in one line."""

from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.status.states import cell_states
from hpml_jobs.study.study import Study
from tests.unit.cli.test_invalid_input import last_line

HEADER = "run,gpus,batch,epoch_s"
LAB = f"{HEADER}\na,1,32,48.612\nb,2,32,30.819\nc,4,32,30.822\n"


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


def test_rows_become_cells_with_records_seen_by_status(working_folder):
    assert run_import(LAB) == 0
    assert epoch_times() == LAB_TIMES
    states = cell_states(Study(working_folder / "outputs" / "lab"))
    assert {state.outcome.value for state in states} == {"ok"}
    single, pair, _ = records_of()
    assert (single.cell.strategy, pair.cell.strategy) == (Strategy.SINGLE, Strategy.DDP)
    assert pair.cell.protocol is Protocol.IMPORTED
    assert (pair.iterations, pair.samples, pair.model) == (None, None, None)
    assert (pair.train_s, pair.compute_s, pair.comm_exposed_s, pair.facts) == (
        None,
    ) * 4


def test_optional_columns_are_kept_as_given(working_folder):
    columns = f"{HEADER},strategy,nodes,images,gpu_type,loss,accuracy"
    row = "mine,4,64,20.5,allreduce,2,40000,A100,1.5,0.25"
    assert run_import(f"{columns}\n{row}\n") == 0
    (record,) = records_of()
    cell = record.cell
    assert (cell.strategy, cell.nodes, cell.gpu_type) == (
        Strategy.ALLREDUCE,
        2,
        "A100",
    )
    assert (cell.workload.images, record.iterations) == (40_000, 157)
    assert (record.loss, record.accuracy, record.imported.run) == (1.5, 0.25, "mine")


def test_throughput_gives_the_epoch(working_folder):
    """An epoch of 3 GPUs has 50,001 samples: each GPU has a third, padded."""
    text = "run,gpus,batch,images,images_per_s\na,3,32,50000,1000\n"
    assert run_import(text) == 0
    assert epoch_times() == {(3, 32): 50.001}


@pytest.mark.parametrize("called", ["", "ddp"])
def test_one_gpu_row_is_baseline_despite_strategy_column(called, working_folder):
    assert run_import(f"{HEADER},strategy\na,1,32,48.612,{called}\n") == 0
    assert [record.cell.strategy for record in records_of()] == [Strategy.SINGLE]


def test_rows_of_one_cell_are_repeats(working_folder):
    assert run_import(f"{HEADER}\na,1,32,48\nb,1,64,30\nc,1,32,49\n") == 0
    repeats = {(r.cell.batch, r.cell.repeat, r.epoch_s) for r in records_of()}
    assert repeats == {(32, 0, 48), (32, 1, 49), (64, 0, 30)}


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf" + LAB.encode(),
        LAB.replace(",", ", "),
        LAB.replace("1,32", '"1",32.0'),
    ],
    ids=["BOM", "spaces", "quotes"],
)
def test_forms_of_a_spreadsheet_give_same_cells(text, working_folder):
    assert run_import(text) == 0
    assert epoch_times() == LAB_TIMES


# ---- twice into one study ----


def file_contents(study="lab"):
    root = Path("outputs") / study
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_study_is_imported_once(working_folder, capsys):
    assert run_import(LAB) == 0
    before = file_contents()
    assert run_import(f"{HEADER}\na,1,32,47\n") == 1
    assert "study lab exists: name a new one" in last_line(capsys)
    assert file_contents() == before


def test_invalid_file_makes_no_study(working_folder):
    assert run_import(f"{HEADER}\na,1,32,x\n") == 2
    assert not Path("outputs").exists()
