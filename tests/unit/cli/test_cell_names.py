"""Two cells whose names have the same 6 digits: both are measured, under names that stay."""

import json

import msgspec
import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.validation import InvalidRecordError
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.study import Study
from tests.unit.builders import a_record
from tests.unit.slurm_output import squeue_line
from tests.unit.study_builder import write_record

WORDS = [
    "cluster=greene",
    "device=cpu",
    "workload=digits",
    "study=mine",
    "gpus=1",
    "batch=32",
]
FIRST, SECOND = "workload.lr=0.0391", "workload.lr=0.07556"
SHORT, LONG = "single-1proc-b32-digits-d54ca0", "single-1proc-b32-digits-d54ca0a"


def planned(*words, capsys):
    """The name of each cell of a plan, and why it would be sent or not."""
    capsys.readouterr()
    assert run(["plan", *WORDS, *words, "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    return {cell["cell"]: cell["why"] for cell in cells}


@pytest.mark.parametrize("first", [FIRST, SECOND])
def test_second_cell_of_a_name_is_sent_with_a_digit_more(
    first, slurm, working_folder, capsys
):
    second = SECOND if first == FIRST else FIRST
    assert run([*WORDS, first]) == 0
    slurm.set_output("squeue", squeue_line("101", "RUNNING", node="cs001"))
    earlier = {SHORT: "left out: running"}
    (later,) = planned(second, capsys=capsys)
    assert later.startswith(SHORT)
    assert len(later) == len(SHORT) + 1
    assert run([*WORDS, second]) == 0
    cells = {
        folder.slug: folder
        for folder in Study(working_folder / "outputs" / "mine").cells()
    }
    assert set(cells) == {SHORT, later}
    assert cells[SHORT].digest() != cells[later].digest()
    queue = [squeue_line(job, "RUNNING", node="cs001") for job in ("101", "102")]
    slurm.set_output("squeue", "".join(queue))
    assert planned(first, capsys=capsys) == earlier
    assert planned(second, capsys=capsys) == {later: "left out: running"}
    both = f"{second},{first.partition('=')[2]}"
    assert set(planned("-m", both, capsys=capsys)) == {SHORT, later}


def test_record_with_a_longer_name_is_read(slurm, working_folder, capsys):
    both = f"{FIRST},{SECOND.partition('=')[2]}"
    assert run(["-m", *WORDS, both]) == 0
    capsys.readouterr()
    study = Study(working_folder / "outputs" / "mine")
    folder = study.cell(LONG)
    record = msgspec.structs.replace(a_record(folder.read().cell), slug=LONG)
    write_record(folder, record)
    assert folder.read_record() == record
    assert planned(both, "-m", capsys=capsys)[LONG] == "left out: ok"
    write_whole(study.cell(SHORT).record_json, encode(record))
    with pytest.raises(InvalidRecordError, match=f"is the record of {LONG}"):
        study.cell(SHORT).read_record()


def test_resubmission_keeps_the_longer_name(slurm, working_folder, capsys):
    both = f"{FIRST},{SECOND.partition('=')[2]}"
    assert run(["-m", *WORDS, both]) == 0
    assert run(["resubmit", "mine", LONG]) == 0, capsys.readouterr().err
    assert "submitted 1 cell" in capsys.readouterr().out
    names = {
        folder.slug for folder in Study(working_folder / "outputs" / "mine").cells()
    }
    assert names == {SHORT, LONG}
