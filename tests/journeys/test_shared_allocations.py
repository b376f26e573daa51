"""Many cells in one job, on the real SLURM: packs, the follow-up job, cancel."""

import json

import pytest

pytestmark = pytest.mark.journey

OWN = (
    "batch=16",
    "workload=custom",
    "workload.data=user_code:dataset",
    "protocol=lab",
    "minutes=12",
)
SIDE_BY_SIDE = ("cluster.isolate=off", "loader_workers=0")


@pytest.fixture(scope="module")
def studies(submit):
    """Three studies submitted together: they wait for SLURM more than for the processor."""
    models = "workload.model=user_code:build,user_code:RaisingModel"
    return {
        "killed": submit(
            *("killed", *OWN[1:], *SIDE_BY_SIDE, "-m", "gpus=1", "batch=32,128"),
            "workload.model=user_code:MemoryExhausting",
        ),
        "packed": submit(
            *("packed", *OWN, *SIDE_BY_SIDE, "-m", "gpus=1,2", models),
            *("pack=true", "collect_after=true"),
        ),
        "stopped": submit(
            "stopped",
            *OWN,
            *SIDE_BY_SIDE,
            "gpus=2",
            "workload.model=user_code:SleepingModel",
        ),
    }


def test_study_cancelled_by_job_id_is_resubmitted_by_outcome(studies, login, rig):
    """Cancel by job id; then resubmit the cells by outcome."""
    stopped = studies["stopped"]
    assert stopped.job in login.ok("cancel", "stopped")
    assert rig.wait_for_state(stopped.job, {"CANCELLED"}) == ["CANCELLED"]
    (state,) = stopped.wait_until_finished().values()
    assert state["outcome"] == "cancelled"
    assert "no job is pending or running" in login.ok("cancel", "stopped")
    nobody = login("resubmit", "stopped", "--failed")
    assert nobody.returncode == 0
    assert nobody.stdout == "nothing to resubmit of 1 cell: 1 cancelled\n"
    unsaid = login("resubmit", "stopped")
    assert unsaid.returncode == 2
    assert "specify what to resubmit: --failed --oom" in unsaid.stderr
    again = json.loads(
        login.ok(
            "resubmit",
            "stopped",
            "--cancelled",
            "--minutes",
            "7",
            "--mem",
            "3",
            "--json",
        )
    )
    (row,) = again["cells"]
    assert (row["why"], row["shape"]) == (
        "cancelled before",
        "1 node x 2 rtx8000, 2 CPUs, 3 GB, 7 min",
    )
    assert row["job"] != stopped.job
    assert (
        rig.run("squeue", "-h", "-j", row["job"], "-o", "%l").stdout.strip() == "7:00"
    )
    login.ok("cancel", "stopped", "ddp-*")
    # nobody else's jobs were touched
    assert "cancelled" not in {
        state["outcome"] for state in studies["packed"].states().values()
    }


def test_pack_queues_once_and_a_failing_cell_fails_alone(studies, rig):
    packed = studies["packed"]
    states = packed.wait_until_finished()
    assert len(set(packed.jobs.values())) == 1
    (row,) = rig.sacct(next(iter(packed.jobs.values())), "AllocTRES", "State")
    assert "gres/gpu:rtx8000=2" in row["AllocTRES"].split(",")
    outcomes = {
        (slug.split("-")[0], state["outcome"]): state["reason"]
        for slug, state in states.items()
    }
    assert set(outcomes) == {("single", "ok"), ("ddp", "ok"), ("ddp", "failed")}
    assert "rank 1: ValueError: this model cannot count" in outcomes["ddp", "failed"]
    records = packed.records()
    assert len(records) == 3
    for slug, record in records.items():
        assert record.attempt.job == packed.jobs[slug]
        # a step has its cell's share of the allocation and no more
        assert record.facts is not None
        gpus = record.facts.slurm["SLURM_STEP_GPUS"].split(",")
        assert len(gpus) == record.cell.gpus
    assert not packed.alive_processes()


def test_followup_job_writes_report_after_a_failed_cell(studies, login, rig):
    packed = studies["packed"]
    closing = packed.answer["closing"]
    assert rig.wait_for_state(closing, {"COMPLETED"}) == ["COMPLETED"]
    (job,) = rig.sacct(closing, "AllocTRES")
    assert "gpu" not in job["AllocTRES"]
    assert f"follow-up job {closing} (report, after all cells): completed" in login.ok(
        "status", "packed"
    )
    answer = json.loads((packed.study.report / "tables.json").read_text())
    assert [
        entry["outcome"] for group in answer["groups"] for entry in group["entries"]
    ]


def test_batch_beyond_the_memory_is_a_result(studies, login):
    killed = studies["killed"]
    states = killed.wait_until_finished()
    outcomes = {state["outcome"]: state for state in states.values()}
    assert set(outcomes) == {"ok", "oom"}
    assert "memory limit exceeded" in outcomes["oom"]["reason"]
    assert "OOM" in login.ok("collect", killed.name, "--all")
