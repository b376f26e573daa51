"""GPU-hours of jobs that SLURM requeued: every run counts, once."""

import json

import pytest

from hpml_jobs.cli.main import run
from tests.unit.slurm_output import SUBMITTED, squeue_line

WORDS = ["submit", "gpus=2", "workload=digits", "study=mine", "cluster=greene"]


def run_row(state, start_s, used_s):
    """A line of sacct: a run on two GPUs."""
    start = SUBMITTED + start_s
    end = "Unknown" if state == "RUNNING" else str(start + used_s)
    tres = "billing=1,cpu=1,gres/gpu:rtx8000=2,gres/gpu=2"
    return f"101|{state}|0:0|gr001|{SUBMITTED}|{start}|{end}|{used_s}|30|{tres}\n"


@pytest.fixture
def usage(slurm, working_folder, capsys):
    assert run(WORDS) == 0
    capsys.readouterr()

    def answer():
        assert run(["status", "mine", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        return document["usage"], document["cells"][0]["outcome"]

    return answer


def test_earlier_runs_of_requeued_job_count(slurm, usage):
    slurm.set_output(
        "sacct", run_row("PREEMPTED", 30, 600) + run_row("FAILED", 900, 300)
    )
    used, outcome = usage()
    assert outcome == "failed"  # of the last run
    assert (used["runs"], used["used_s"]) == (2, 900)
    assert used["gpu_hours_used"] == pytest.approx(2 * 900 / 3600)
    assert "-D" in slurm.calls("sacct")[-1].split()


@pytest.mark.parametrize("last_row", ["", run_row("RUNNING", 900, 60)])
def test_running_requeued_job_counts_no_run_twice(slurm, usage, last_row):
    line = squeue_line(
        "101", "RUNNING", node="gr002", start=str(SUBMITTED + 900), elapsed="1:00"
    )
    slurm.set_output("squeue", line)
    # sacct lags, or not
    slurm.set_output("sacct", run_row("PREEMPTED", 30, 600) + last_row)
    used, outcome = usage()
    assert outcome == "running"
    assert (used["runs"], used["used_s"]) == (2, 660)


def test_budget_counts_earlier_runs(slurm, usage, capsys):
    slurm.set_output(
        "sacct", run_row("PREEMPTED", 30, 1800) + run_row("FAILED", 3000, 1800)
    )
    assert run([*WORDS, "minutes=30", "cluster.gpu_hours_budget=2.5"]) == 2
    assert "after 2 used or requested by this study" in capsys.readouterr().err
