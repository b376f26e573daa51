"""What is sent: arrays by shape, the scripts' text, a clean environment, an honest manifest."""

import os
import subprocess

import pytest

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.study.manifest import ManifestEvent
from hpml_jobs.submit import send
from hpml_jobs.submit.selection import select
from hpml_jobs.submit.send import RefusedError
from tests.unit.plans import plan_with_folder, requests_of, script_of, send_cells
from tests.unit.slurm_output import squeue_line

FAILED = "sbatch: error: Batch job submission failed: "


def sbatch_lines(text):
    return {line[10:] for line in text.splitlines() if line.startswith("#SBATCH --")}


def test_cells_of_one_shape_form_one_array(slurm):
    plan = plan_with_folder("gpus=1,2,4", "batch=32,128,512")
    requests = requests_of(plan)
    assert [array.shape.gpus_per_node for array in requests] == [1, 2, 4]
    assert [len(array.cells) for array in requests] == [3, 3, 3]
    assert all(
        planned.shape == array.shape for array in requests for planned in array.cells
    )


def test_array_order_is_random_but_seeded(slurm):
    overrides = ("gpus=2", "batch=1,2,4,8,16,32,64,128")
    plan = plan_with_folder(*overrides)
    first, again = (
        [planned.cell.batch for planned in requests_of(plan)[0].cells] for _ in range(2)
    )
    assert first == again != sorted(first)
    other = plan_with_folder(*overrides, "seed=1")
    assert [planned.cell.batch for planned in requests_of(other)[0].cells] != first
    assert sorted(first) == [1, 2, 4, 8, 16, 32, 64, 128]


@pytest.mark.parametrize("request_of", ["array", "pack"])
def test_repeats_are_submitted_in_rounds_of_all_batches(slurm, request_of):
    words = ("gpus=2", "batch=32,64,128", "repeats=4", f"pack={request_of == 'pack'}")
    (request,) = requests_of(plan_with_folder(*words))
    rounds = [request.cells[start : start + 3] for start in (0, 3, 6, 9)]
    assert [{planned.cell.repeat for planned in cells} for cells in rounds] == [
        {0},
        {1},
        {2},
        {3},
    ]
    orders = [tuple(planned.cell.batch for planned in cells) for cells in rounds]
    assert {tuple(sorted(order)) for order in orders} == {(32, 64, 128)}
    assert len(set(orders)) > 1  # each round has an order of its own


def test_array_is_split_at_max_array_size(slurm):
    slurm.set_cluster_name("greene", max_array_size=3)
    plan = plan_with_folder("gpus=2", "repeats=8")
    assert [len(array.cells) for array in requests_of(plan)] == [3, 3, 2]


def test_srun_step_has_cpus_and_kill_on_bad_exit(slurm):
    plan = plan_with_folder("gpus=2")
    (array,) = requests_of(plan)
    (step,) = [
        line for line in script_of(plan, array).splitlines() if line.startswith("srun ")
    ]
    assert {"--export=ALL", "--cpus-per-task=8", "--kill-on-bad-exit=1"} <= {
        *step.split()
    }
    assert "-u -m submitit.core._submit" in step


def test_isolated_study_uses_one_job_name_and_singleton(slurm):
    plan = plan_with_folder(
        "gpus=1,2", "repeats=2", "cluster.isolate=serial", "study=mine"
    )
    for array in requests_of(plan):
        options = sbatch_lines(script_of(plan, array))
        assert {"job-name=hpml-mine", "dependency=singleton", "array=0-1%1"} <= options


def test_send_writes_manifest_before_and_after_sbatch(slurm):
    plan = plan_with_folder("gpus=1,2", "repeats=2", "study=mine")
    jobs = send_cells(plan)
    assert sorted(jobs.values()) == ["101_0", "101_1", "102_0", "102_1"]
    lines = list(plan.study.lines())
    assert [line.happening for line in lines] == [
        ManifestEvent.SENDING,
        ManifestEvent.SENT,
    ] * 2
    assert lines[0].batch == lines[1].batch != lines[2].batch
    assert lines[1].jobs == ("101_0", "101_1")
    assert plan.study.history().jobs == jobs
    assert len(slurm.scripts) == 2
    for folder in plan.study.cells():
        assert folder.read().cell.slug == folder.slug


def test_refusal_has_slurm_message_and_keeps_earlier_jobs(slurm):
    slurm.accept_then_refuse(
        1,
        f"sbatch: error: AssocMaxSubmitJobLimit\n{FAILED}Job violates accounting/QOS policy",
    )
    plan = plan_with_folder("gpus=1,2,4", "repeats=2", "study=mine")
    with pytest.raises(RefusedError) as refused:
        send_cells(plan)
    message = str(refused.value)
    assert message.startswith("sbatch refused 2 cells (1 node x 2 rtx8000")
    assert "accounting/QOS policy; submitted before it: 2 cells" in message
    assert "Traceback" not in message
    assert [line.happening.value for line in plan.study.lines()] == [
        *("sending", "sent", "sending", "refused"),
    ]
    assert len(plan.study.history().jobs) == 2
    under_way = squeue_line("101_0", "PENDING", "Priority") + squeue_line(
        "101_1", "RUNNING", node="gr001"
    )
    slurm.set_output("squeue", under_way)
    again = select(plan)
    assert len(again.left_out) == 2
    assert set(again.reasons.values()) == {"not submitted yet"}


REFUSALS = (
    *(
        f"{FAILED}{words}"
        for words in (
            "Access/permission denied",
            "Invalid account or account/partition combination specified",
            "Invalid generic resource (gres) specification",
            "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            "Requested node configuration is not available",
            "Requested time limit is invalid (missing or exceeds some limit)",
            "Unspecified error",
        )
    ),
    "Invalid time specification (pos=0): x\nsbatch: error: Invalid --begin specification",
    'sbatch: error: "x" is not a valid node count',
    "sbatch: error: Ask for a GPU\nsbatch: error: cli_filter plugin terminated with error",
    "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.",
    "sbatch: option '--e=3' is ambiguous; possibilities: '--error' '--exclude'",
    "sh: 1: exec: sbatch: not found",
)
UNANSWERED = (
    *(
        f"{FAILED}{words}"
        for words in (
            "Communication connection failure",
            "Connection reset by peer",
            "Invalid authentication credential",
            "Socket timed out on send/recv operation",
            "Unable to contact slurm controller (receive failure)",
        )
    ),
    "",
    "Invalid accounts are closed today; access denied",
    "sbatch: error: Munge encode failed: Permission denied",
    "/opt/site/sbatch: 12: exec: logger: not found",
)


def test_only_words_that_refuse_are_a_refusal():
    """The messages of slurm_errno.c and of sbatch's options, 22.05 to 26.05."""
    assert [text for text in REFUSALS if not send.REFUSAL.search(text)] == []
    assert [text for text in UNANSWERED if send.REFUSAL.search(text)] == []


@pytest.mark.parametrize("inside", [False, True])
def test_surrounding_job_environment_is_not_inherited(slurm, monkeypatch, inside):
    leaking = {
        "SLURM_CPU_BIND": "x",
        "RANK": "3",
        "MASTER_ADDR": "h",
        "PET_NNODES": "2",
    }
    kept = {
        "SLURM_CONF": "/c",
        "SBATCH_ACCOUNT": "mine",
        "MY_OWN": "1",
        "SBATCH_RESERVATION": "r",
    }
    for name, value in (leaking | kept).items():
        monkeypatch.setenv(name, value)
    if inside:
        monkeypatch.setenv("SLURM_JOB_ID", "17")
    plan = plan_with_folder("gpus=1", "cluster=greene")
    send_cells(plan)
    environment = slurm.environment_of_call()
    assert not (leaking.keys() | {"SLURM_JOB_ID"}) & environment.keys()
    expected = (
        kept.keys() - {"SBATCH_ACCOUNT"} - ({"SBATCH_RESERVATION"} if inside else set())
    )
    assert kept.keys() & environment.keys() == expected
    (array,) = requests_of(plan)
    assert ("account=mine" in sbatch_lines(script_of(plan, array))) is not inside


def test_cells_in_a_group_folder_can_be_written_by_their_owner_only(slurm):
    """A group's outputs folder, and cells of an earlier version in it, go on to work."""
    before = os.umask(0o002)
    try:
        plan = plan_with_folder("gpus=1")
        cells = plan.study.cells_folder
        assert not cells.stat().st_mode & 0o022
        cells.chmod(0o2775)
        send_cells(plan)
    finally:
        os.umask(before)
    written = [cells, *cells.rglob("*")]
    assert len(written) == 3
    assert not any(path.stat().st_mode & 0o022 for path in written)
    assert cells.stat().st_mode & 0o2000


def test_job_whose_folder_was_exchanged_runs_nothing(slurm):
    plan = plan_with_folder("gpus=1")
    send_cells(plan)
    (script,) = slurm.scripts
    lines = [line for line in script.splitlines() if not line.startswith("srun")]
    text = "\n".join([*lines, "echo reached"])
    words = ["/bin/bash", "-c", f"PATH=/usr/bin:/bin\n{text}"]
    assert subprocess.check_output(words, text=True) == "reached\n"
    plan.study.slurm.rename(plan.study.root / "old")
    plan.study.slurm.mkdir()
    plan.study.slurm.chmod(0o775)
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "is not yours, or other users can write there" in ended.stderr


def test_folder_writable_by_others_is_refused(slurm):
    plan = plan_with_folder("gpus=1")
    plan.study.slurm.chmod(0o777)
    with pytest.raises(
        HpmlError, match=r"other users can write there, .* chmod 700 it"
    ):
        send_cells(plan)
    assert slurm.scripts == []
