"""A study with `auto` on SLURM, step by step: what is sent, by whom, and when it ends."""

from collections import Counter

import msgspec
import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.study.study import Study
from tests.unit.builders import a_record
from tests.unit.check_cases import wait_for_cpu
from tests.unit.slurm_output import sacct_line
from tests.unit.study_builder import write_record

AUTO = ("submit", "gpus=auto", "batch=auto", "workload=digits", "study=mine")
AS_JOB = (*AUTO, "--followup")

SECONDS = {(1, 32): 8.0, (1, 128): 4.0, (1, 512): 3.95, (2, 512): 2.1, (4, 512): 2.0}
"""Seconds of an epoch by GPUs and batch: 2 GPUs are efficient enough."""


@pytest.fixture
def study(slurm, working_folder):
    return Study(working_folder / "outputs" / "mine")


def places(study):
    """Return GPUs and batch of every cell that was sent, in order."""
    cells = [study.cell(slug).read().cell for slug in study.history().cells]
    return [(cell.gpus, cell.batch) for cell in cells]


def measure(study, slurm, change=None, **changes):
    """Let every job end, and write the records of the cells that have none."""
    history = study.history()
    lines = [
        sacct_line(job, "COMPLETED") for job in {**history.sent, **history.closing}
    ]
    slurm.set_output("sacct", "".join(lines))
    for slug, job in history.jobs.items():
        folder = study.cell(slug)
        cell = folder.read().cell
        if not folder.record_json.exists():
            seconds = SECONDS[cell.gpus, cell.batch]
            record = a_record(cell, f"{job}.r0", seconds, **changes)
            write_record(folder, change(record) if change else record)


def test_each_step_is_sent_once_until_the_answer_is_known(study, slurm, capsys):
    assert run([*AUTO]) == 0
    first = [(1, 32), (1, 128), (1, 512)]
    assert sorted(places(study)) == first
    assert "--wrap" not in slurm.scripts[0]
    assert slurm.scripts[0].count("\ncell ") == 3  # one allocation
    followup = slurm.scripts[1]
    assert f"submit --followup {' '.join(AUTO[1:])}" in followup
    assert "collect mine --outputs" in followup
    assert "min_efficiency=0.7" in study.commands()[0]
    run([*AUTO])  # while they are waiting
    assert sorted(places(study)) == first
    measure(study, slurm)
    assert run([*AS_JOB]) == 0
    assert places(study)[3:] == [(4, 512)]
    measure(study, slurm)
    assert run([*AS_JOB]) == 0
    assert places(study)[4:] == [(2, 512)]
    measure(study, slurm)
    capsys.readouterr()
    scripts = len(slurm.scripts)
    assert run([*AS_JOB]) == 0
    assert len(slurm.scripts) == scripts
    assert (
        "ended; 5 of 9 combinations of gpus and batch measured in 5 runs"
        in capsys.readouterr().err
    )
    assert len(study.commands()) == 2  # those that were typed


def test_end_says_why_batches_are_not_larger(study, slurm, capsys):
    run([*AUTO, "max_gpus=1"])
    measure(study, slurm)
    run([*AS_JOB, "max_gpus=1"])
    reason = "batches end at 512: it is not 2 % faster than the one before"
    assert reason in capsys.readouterr().err


def test_cells_of_other_conditions_are_refused(study, slurm, capsys):
    run([*AUTO])
    scripts = len(slurm.scripts)
    assert run([*AUTO, "data.limit=8192"]) == 2
    assert "data.limit=8192, there none" in capsys.readouterr().err.splitlines()[-1]
    assert len(slurm.scripts) == scripts


def test_batch_that_does_not_fit_ends_the_batches(study, slurm):
    run([*AUTO])
    measure(study, slurm)
    slug = max(
        study.history().cells, key=lambda slug: study.cell(slug).read().cell.batch
    )
    folder = study.cell(slug)
    record = a_record(folder.read().cell)
    changes = {"outcome": Outcome.OOM, "reason": "CUDA out of memory", "ranks": ()}
    write_record(folder, msgspec.structs.replace(record, model=None, **changes))
    run([*AS_JOB])
    assert places(study)[3:] == [(4, 128)]


@pytest.mark.parametrize("state", ["FAILED", "OUT_OF_MEMORY"])
def test_failed_cell_ends_the_chain_but_not_the_command(study, slurm, capsys, state):
    """Memory of the host that does not suffice says nothing of the batch."""
    run([*AUTO])
    slurm.set_output("sacct", sacct_line("101", state, "1:0"))
    scripts = len(slurm.scripts)
    capsys.readouterr()
    assert run([*AS_JOB]) == 0
    assert len(slurm.scripts) == scripts
    assert "the same command goes on" in capsys.readouterr().err
    run([*AUTO])
    assert len(slurm.scripts) == scripts + 2


def test_lost_cell_is_sent_again_twice_to_another_node(study, slurm):
    words = ["submit", "gpus=auto", "max_gpus=1", "batch=32", *AUTO[3:]]
    run(words)
    for times in (1, 2, 3):
        jobs = study.history().sent
        lines = [sacct_line(job, "NODE_FAIL", node="gr002") for job in jobs]
        slurm.set_output("sacct", "".join(lines))
        run([*words, "--followup"])
        assert len(study.history().sent) == min(times, 2) + 1
    assert "exclude=gr002" in "".join(slurm.scripts)


def test_repeats_of_a_list_of_sizes(study, slurm):
    words = ["submit", "-m", "gpus=1,2", "batch=512", "repeats=auto", *AUTO[3:]]
    run(words)
    assert places(study) == [(1, 512)]
    measure(study, slurm)
    run([*words, "--followup"])
    assert places(study)[1:] == [(1, 512)]
    measure(study, slurm)
    run([*words, "--followup"])
    assert places(study)[2:] == [(2, 512)]
    measure(study, slurm)
    run([*words, "--followup"])
    assert len(places(study)) == 3  # 93 % is far from 70 %


def test_disturbed_launches_are_repeated_at_most_twice(study, slurm):
    """An efficiency of 94 % is far from 30 %: without a disturbance one launch decides."""
    words = ["submit", "-m", "gpus=1,2", "batch=512", "repeats=auto", *AUTO[3:]]
    words.append("min_efficiency=0.3")
    run(words)
    for _ in range(8):
        measure(study, slurm, wait_for_cpu("timed", 0.6))
        run([*words, "--followup"])
    assert Counter(places(study)) == {(1, 512): 3, (2, 512): 3}


def test_worst_case_is_within_the_budget_of_the_cluster(study, slurm, capsys):
    assert run([*AUTO, "cluster.gpu_hours_budget=10"]) == 2
    error = capsys.readouterr().err
    assert "these cells request up to 10.5 GPU-hours" in error
    assert run([*AUTO, "cluster.gpu_hours_budget=11"]) == 0


def test_budget_of_gpus_is_not_asked_for_processes(study, slurm):
    words = ("device=cpu", "max_gpus=2", "cluster.gpu_hours_budget=0.1")
    assert run([*AUTO, *words]) == 0
