"""`largest_batch=auto`: the ladder first, then a grid with the batch that it found."""

import json

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.study.study import Study
from tests.unit.cli.test_local_runs import study_with_faulty_model
from tests.unit.submit.test_sent_once import queue

GRID = 'blocks: [{batch: ["${largest_batch}"], seed: [1, 2]}]'


def test_grid_takes_the_batch_of_a_local_ladder(program):
    model = study_with_faulty_model(
        program, "torch.empty(2**50 if self.training and len(x) > 8 else 1)"
    )[:-1]
    (program.folder / "grid").mkdir()
    (program.folder / "grid/mine.yaml").write_text(GRID)
    ladder = ("ladder.factor=2", "gpus=1", "study=up", "--config-dir", ".", *model)
    first = ("grid=mine", "ladder.start=8", *ladder)
    unknown = program(*first, "largest_batch=ladder")
    assert "study up has no answer yet, 3 cells without a result" in unknown.stderr
    program.ok(*first, "largest_batch=auto")
    cells = json.loads(program.ok("status", "--json"))["cells"]
    of_grid = [cell["slug"] for cell in cells if "-s" in cell["slug"]]
    assert [slug.split("-")[2] for slug in of_grid] == ["b8", "b8"]
    assert "OOM" in program.ok("collect", "--all")
    for words, refusal in (
        ((*first, "workload.lr=0.1,0.2"), "needs one ladder, and these keys make 2"),
        (first[1:], "is for a grid: add grid=large_batch"),
        (
            ("grid=mine", "ladder.start=16", *ladder),
            "fits: use ladder.start=N below 16",
        ),
    ):
        assert refusal in program(*words, "largest_batch=auto").stderr


def test_followup_job_of_a_ladder_keeps_what_the_shell_gives(slurm, monkeypatch):
    """In that job the variables are not read."""
    monkeypatch.setenv("SBATCH_TIMELIMIT", "7")
    monkeypatch.setenv("SBATCH_PARTITION", "main")
    words = ("grid=large_batch", "largest_batch=auto", "cluster=slurm", "gpu_type=v100")
    assert (
        run([*words, "study=mine", "cluster.cpu_partition=cpu", "workload=digits"]) == 0
    )
    assert "minutes=7 cluster.partition=main" in slurm.scripts[-1]


def test_word_of_the_users_file_is_as_that_of_the_command(slurm, user_config_file):
    user_config_file.write_text("largest_batch: auto\n")
    words = ("cluster=slurm", "gpu_type=v100", "workload=digits")
    assert run(["grid=large_batch", *words]) == 0
    assert "grid=large_batch cluster=slurm" in slurm.scripts[-1]
    assert "largest_batch=ladder" in slurm.scripts[-1]
    assert run(["gpus=1", "study=other", *words]) == 0  # it has no part in this


@pytest.fixture
def words(slurm, working_folder):
    """A grid after a ladder, submitted once."""
    (working_folder / "grid").mkdir()
    (working_folder / "grid" / "mine.yaml").write_text(GRID)
    words = ["grid=mine", "--config-dir", ".", "largest_batch=auto", "workload=digits"]
    words += ["study=mine", "cluster=greene"]
    assert run(words) == 0
    return words


def test_ladder_that_waits_already_is_not_made_again(
    words, slurm, working_folder, capsys
):
    queue(slurm, Study(working_folder / "outputs" / "mine"))
    before = len(slurm.scripts)
    assert run(words) == 1
    assert len(slurm.scripts) == before
    assert "has no answer yet" in capsys.readouterr().err
