"""User code that hangs on one rank: the cell ends, and says where each rank was."""

import json
import shutil
import subprocess

import pytest

from tests.conftest import local_program
from tests.journeys.conftest import HERE
from tests.patience import PATIENCE_S

HANGS = {
    "loop": ("LoopingModel", "dataset"),
    "collective": ("LonelyModel", "dataset"),
    "loader": ("build", "stuck_dataset"),
}
MODULE = "hanging_models"
WORDS = (
    *(
        "cluster=local",
        "device=cpu",
        "gpus=2",
        "batch=16",
        "loader_workers=1",
        "protocol=lab",
    ),
    "workload=custom",
    "minutes=6",  # a collective waits for a third of them
)


def hang(folder, *names):
    """Run cells that hang, at the same time: they wait for a timeout, not for the processor."""
    program = local_program(folder)
    for name in ("user_code.py", f"{MODULE}.py"):
        shutil.copy(HERE / name, program.folder)
    runs = []
    for name in names:
        model, data = (f"{MODULE}:{function}" for function in HANGS[name])
        code = (f"workload.model={model}", f"workload.data={data}")
        command = [program.python, "-m", "hpml_jobs", *WORDS, f"study={name}", *code]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        runs.append(
            subprocess.Popen(
                command, cwd=program.folder, env=program.environment, **quiet
            )
        )
    assert {run.wait(PATIENCE_S) for run in runs} == {1}
    return program


@pytest.fixture(scope="module")
def hung_cells(tmp_path_factory):
    return hang(tmp_path_factory.mktemp("hangs"), "loop", "loader")


def reason_of(program, study):
    (cell,) = json.loads(program.ok("status", study, "--json"))["cells"]
    assert cell["outcome"] == "failed"
    return cell["reason"]


def line_of(program, text):
    """Where a text is in the user's file, as a stack names it."""
    path = program.folder / "hanging_models.py"
    number = next(
        n for n, line in enumerate(path.read_text().splitlines(), 1) if text in line
    )
    return f"{path}, line {number}"


def test_user_loop_without_end_is_named(hung_cells):
    reason = reason_of(hung_cells, "loop")
    assert reason.startswith("a collective timed out: rank 1 was in ")
    assert line_of(hung_cells, "# loops") in reason
    assert "rank 0 was in backward() or waiting in its collectives" in reason


def test_logs_of_hung_cell_show_the_stacks(hung_cells):
    text = hung_cells.ok("logs", "loop")
    assert "Timed out waiting" in text
    assert (
        f'File "{hung_cells.folder / "hanging_models.py"}"'
        in text.partition("rank1.txt")[2]
    )


@pytest.mark.long
def test_collective_without_partner_is_named(tmp_path):
    hung = hang(tmp_path, "collective")
    reason = reason_of(hung, "collective")
    assert "rank 1 was waiting in barrier (" in reason
    assert line_of(hung, "# waits") in reason


def test_stuck_data_loader_is_named(hung_cells):
    reason = reason_of(hung_cells, "loader")
    assert "rank 1 was waiting for its data loader, whose worker was in " in reason
    assert line_of(hung_cells, "# loads") in reason
