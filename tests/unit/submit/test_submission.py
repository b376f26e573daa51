"""A submission: what it prints, and that SLURM is asked once."""

import json
import re

from submitit.core.utils import JobPaths

from hpml_jobs.cli.main import run
from tests.unit.plans import plan_with_folder, requests_of, script_of
from tests.unit.slurm_output import sacct_line

WORDS = ("-m", "gpus=1,2", "workload=digits", "study=mine", "cluster=greene")


def test_submission_with_budget_asks_slurm_once(slurm):
    words = ("submit", *WORDS, "cluster.gpu_hours_budget=100")
    assert run([*words]) == 0
    # a new study has no jobs
    assert slurm.calls("squeue") == slurm.calls("sacct") == []
    slurm.set_output(
        "sacct", sacct_line("101", "FAILED", "1:0") + sacct_line("102", "FAILED")
    )
    assert run([*words]) == 0
    assert (len(slurm.calls("squeue")), len(slurm.calls("sacct"))) == (1, 1)
    assert run(["resubmit", "mine", "ddp-*"]) == 0
    assert (len(slurm.calls("squeue")), len(slurm.calls("sacct"))) == (2, 2)


def test_each_accepted_job_is_printed_in_a_line(slurm, capsys):
    slurm.accept_then_refuse(1)
    assert run(["submit", *WORDS]) == 1
    printed = capsys.readouterr()
    first, second, *_ = printed.out.splitlines()
    assert first == "up to 1.5 GPU-hours: 2 cells as 2 jobs"
    assert second.startswith("job 101, 1 cell: 1 node x 1 rtx8000")
    assert "submitted 1 cell as 1 job (SLURM 101)" in printed.out
    assert "submitted before it: 1 cell\n" in printed.err


def test_logs_are_where_submitit_looks_for_them(slurm):
    """submitit's runner writes its result, and we read the logs, by the job's id and the task."""
    plan = plan_with_folder("gpus=1,2", "study=mine")
    (request, *_) = requests_of(plan)
    paths = JobPaths(plan.study.slurm, job_id="17", task_id=0)
    text = script_of(plan, request).replace("%j", "17")
    assert f"#SBATCH --output={paths.stdout}\n#SBATCH --error={paths.stderr}\n" in text
    assert plan.study.slurm_log("17", 0) == paths.stderr


def test_preview_says_cells_and_hours_of_each_block(slurm, capsys):
    words = ["plan", "grid=hw5", "cluster=greene", "gpu_type=rtx8000", "minutes=60"]
    assert run([*words, "--json"]) == 0
    blocks = json.loads(capsys.readouterr().out)["blocks"]
    assert [(b["block"], b["cells"], b["gpu_hours"]) for b in blocks] == [
        ("Q1, large batches", 3, 3),
        ("Q1 to Q3, Q6", 9, 21),
        ("Q4", 12, 39),
        ("Q5", 6, 24),
        ("Q7", 6, 24),  # three are those of Q4
        ("part B", 2, 2),
    ]
    assert run(words) == 0
    out = capsys.readouterr().out
    shown = out.replace(" \n", "\n")
    assert "block              cells  GPU-hours\nQ1, large batches  3      3" in shown
    assert "a cell of several blocks is counted in the first" in out


def test_preview_of_cells_that_run_here_has_their_time_limits_alone(laptop, capsys):
    assert run(["plan", "grid=hw5", "device=cpu"]) == 0
    out = capsys.readouterr().out
    assert (
        "16 cells on this machine, one after another\ntime limits: 8 h 00 min in all\n"
        in out
    )
    assert "time limit 30 min  new" in out
    assert "1 node, " not in out
    assert re.search(r"^Q4 +\d+ +– *$", out, re.MULTILINE)


def test_preview_of_existing_study_says_that_it_is_over_budget(slurm, capsys):
    assert run(["submit", *WORDS]) == 0
    assert run(["plan", *WORDS, "batch=8", "cluster.gpu_hours_budget=0.5"]) == 0
    assert "it would be refused: these cells request up to" in capsys.readouterr().out


def test_new_cells_that_share_no_table_with_the_study_are_announced(slurm, capsys):
    demo = ("-m", "study=demo", "cluster=greene", "workload=digits", "batch=64")
    assert run([*demo, "gpus=1,2", "data.limit=5120"]) == 0
    assert "cannot be compared" not in capsys.readouterr().err
    assert run([*demo, "gpus=1,2,4", "data.limit=5120"]) == 0
    assert "cannot be compared" not in capsys.readouterr().err
    assert run(["plan", *demo, "gpus=1,2"]) == 0
    assert (
        "2 new cells cannot be compared with the 3 cells of the study: limit none, there 5120."
        in capsys.readouterr().err
    )
