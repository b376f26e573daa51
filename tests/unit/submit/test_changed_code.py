"""The user's code is part of the cell: what is said and refused when it changed."""

import json

import msgspec
import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.answers import Counts
from hpml_jobs.core.source_files import named_file
from hpml_jobs.core.workload import SourceFile
from hpml_jobs.plan import data
from hpml_jobs.study.study import Study
from tests.unit.builders import a_cell, a_record
from tests.unit.slurm_output import sacct_line, squeue_line
from tests.unit.study_builder import write_record

WORDS = (
    *("-m", "gpus=2", "batch=8,16", "study=own", "cluster=greene", "workload=custom"),
    *("workload.model=mygpt:build", "workload.data=mygpt:dataset"),
)


@pytest.fixture
def own_code(slurm, working_folder, monkeypatch):
    """A model in two files; what the jobs' Python would count is given."""
    counts = Counts(images=64, parameters=10)
    monkeypatch.setattr(data, "prepare", lambda *_, **__: counts)
    (working_folder / "mygpt.py").write_text("import blocks\n")
    (working_folder / "blocks.py").write_text("width = 1\n")
    return working_folder


def sent(capsys, *words):
    """What a submission says of every cell, and its notes."""
    assert run([*WORDS, *words, "--json"]) == 0
    shown = capsys.readouterr()
    return {
        row["cell"]: row["why"] for row in json.loads(shown.out)["cells"]
    }, shown.err


def test_changed_code_is_another_cell_and_said_at_submission(own_code, slurm, capsys):
    first, notes = sent(capsys)
    assert "changed" not in notes
    slurm.set_output(
        "squeue", squeue_line("101_0", "PENDING") + squeue_line("101_1", "PENDING")
    )
    left_out, _ = sent(capsys)
    assert left_out == dict.fromkeys(first, "left out: pending")
    (own_code / "blocks.py").write_text("width = 1  # wider\n")
    second, notes = sent(capsys)
    assert set(second.values()) == {"new"}
    assert not first.keys() & second.keys()
    assert "blocks.py changed since ddp-2gpu-b8-custom-" in notes
    assert " and 1 other were sent: 2 cells are new" in notes


def test_resubmit_refuses_changed_code_and_says_how_to_go_on(own_code, slurm, capsys):
    sent(capsys)
    slurm.set_output("sacct", sacct_line("101_0", "FAILED", "1:0"))
    (own_code / "mygpt.py").write_text("import blocks, sys\n")
    assert run(["resubmit", "own", "--failed"]) == 1
    error = capsys.readouterr().err
    assert (
        "was submitted: mygpt.py; repeat the command that submitted the study" in error
    )
    (own_code / "mygpt.py").write_text("import blocks\n")
    assert run(["resubmit", "own", "--failed"]) == 0
    assert len(slurm.scripts) == 2


def test_imported_code_that_changed_is_another_cell(own_code, capsys, monkeypatch):
    """Files that only the jobs' Python finds, because the code adds their folder to sys.path."""
    seen = []
    for text in ("1", "1", "2"):
        imported = (SourceFile(name="helper.py", sha256=text),)
        counts = Counts(images=64, parameters=10, imported=imported)
        monkeypatch.setattr(data, "prepare", lambda *_, counts=counts, **__: counts)
        seen.append(sent(capsys))
    (first, _), (again, _), (changed, notes) = seen
    assert {*first} == {*again}
    assert not {*first} & {*changed}
    assert "helper.py changed since ddp-2gpu-b8-custom-" in notes


def test_helper_that_a_script_imported_when_it_ran_is_compared(
    working_folder, slurm, capsys
):
    """A folder that it adds to sys.path is not found by parsing."""
    (working_folder / "train.py").write_text("import torch\n")
    (working_folder / "extra").mkdir()
    helper = working_folder / "extra" / "helper.py"
    helper.write_text("n = 1\n")
    words = ("gpus=1", "batch=8", "study=own", "cluster=greene", "script=train.py")

    def why():
        assert run([*words, "args=--b {batch}", "--json"]) == 0
        [row] = json.loads(capsys.readouterr().out)["cells"]
        jobs.append(row["job"])
        return row["why"]

    jobs: list[str] = []
    assert why() == "new"
    [folder] = Study(working_folder / "outputs" / "own").cells()
    cell = folder.read().cell
    record = msgspec.structs.replace(
        a_record(a_cell(gpus=1, batch=8)), cell=cell, slug=folder.slug
    )
    named = named_file(helper, working_folder)
    assert named.name == "extra/helper.py"
    facts = msgspec.structs.replace(record.facts, helpers=(named,))
    write_record(folder, msgspec.structs.replace(record, facts=facts))
    assert why() == "left out: ok"
    helper.write_text("n = 30\n")
    assert why() == "again (extra/helper.py changed)"
    slurm.set_output("squeue", squeue_line(jobs[-1], "PENDING"))
    assert why() == "left out: pending"
