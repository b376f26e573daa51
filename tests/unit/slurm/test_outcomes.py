"""SLURM's states, the output of sinfo and scontrol, and the environment of jobs."""

import pytest

from hpml_jobs.core.cell import Outcome
from hpml_jobs.slurm.commands import scrubbed
from hpml_jobs.slurm.jobs import outcome_of
from hpml_jobs.slurm.nodes import parse_sinfo

STATES_OF = {
    Outcome.PENDING: (
        "PENDING CONFIGURING EXPEDITING LAUNCH_FAILED POWER_UP_NODE RECONFIG_FAIL REQUEUED "
        "REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT"
    ),
    Outcome.RUNNING: "RUNNING COMPLETING RESIZING SIGNALING STAGE_OUT STOPPED SUSPENDED",
    Outcome.NODE_FAIL: "BOOT_FAIL NODE_FAIL",
    Outcome.CANCELLED: "CANCELLED REVOKED",
    Outcome.MISSING: "COMPLETED",
    Outcome.TIMEOUT: "DEADLINE TIMEOUT",
    Outcome.FAILED: "FAILED",
    Outcome.OOM: "OUT_OF_MEMORY",
    Outcome.PREEMPTED: "PREEMPTED",
}
STATES = [
    (state, outcome)
    for outcome, states in STATES_OF.items()
    for state in states.split()
]


@pytest.mark.parametrize(("state", "outcome"), STATES)
def test_every_squeue_and_sacct_state_has_an_outcome(state, outcome):
    assert outcome_of(state) is outcome


@pytest.mark.parametrize("text", ["CANCELLED by 1000", "CANCELLED by 0"])
def test_cancelled_by_any_user_is_cancelled(text):
    assert outcome_of(text) is Outcome.CANCELLED


@pytest.mark.parametrize("text", ["", "HYPERSPACE", "UPDATE_DB"])
def test_unrecognized_state_is_unknown(text):
    assert outcome_of(text) is Outcome.UNKNOWN


def test_outcome_is_active_or_finished_as_documented():
    """Only pending and running are active; only ok and oom are finished."""
    assert [outcome for outcome in Outcome if outcome.active] == [
        Outcome.PENDING,
        Outcome.RUNNING,
    ]
    assert [outcome for outcome in Outcome if outcome.finished] == [
        Outcome.OK,
        Outcome.OOM,
    ]


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("gpu:rtx8000:4(S:0-1)", [("rtx8000", 4)]),
        ("gpu:4", [(None, 4)]),
        ("gpu:a100:2,gpu:h100:1", [("a100", 2), ("h100", 1)]),
        ("(null)", [(None, 0)]),
        ("gpu:a100:2(S:0),gpu:a100:2(S:1)", [("a100", 4)]),
        ("gpu:a100:no_consume:4", [("a100", 4)]),
        ("gpu:1g.5gb:7", [("1g.5gb", 7)]),
        ("mps:gpu:100,gpu:l4:1", [("l4", 1)]),
    ],
)
def test_sinfo_gives_gpu_type_and_number(gres, expected):
    nodes = parse_sinfo(f"n1|{gres}|16+|9000+|main\n")
    assert [(node.gpu_type, node.gpus) for node in nodes] == expected
    assert (nodes[0].cpus, nodes[0].memory_gb) == (16, 9.0)


def test_node_in_two_partitions_is_one_node():
    (node,) = parse_sinfo(
        "n1|gpu:l4:1|8|9000|main\nn1|gpu:l4:1|8|9000|preempt\nnonsense\n"
    )
    assert node.partitions == {"main", "preempt"}


def test_surrounding_job_variables_are_removed_but_slurm_conf():
    leaking = [
        "SLURM_CPU_BIND",
        "SRUN_DEBUG",
        "SBATCH_ACCOUNT",
        "RANK",
        "MASTER_ADDR",
        "PMI_RANK",
    ]
    leaking += ["PET_X", "TORCHELASTIC_RUN_ID", "SUBMITIT_EXECUTOR", "LOCAL_WORLD_SIZE"]
    stays = {
        "SLURM_CONF": "c",
        "PATH": "p",
        "NCCL_DEBUG": "INFO",
        "RANKING": "r",
        "HOME": "h",
    }
    assert scrubbed(dict.fromkeys(leaking, "x") | stays, inside_job=True) == stays


def test_user_sbatch_defaults_are_kept_outside_a_job():
    defaults = {"SBATCH_ACCOUNT": "mine", "SLURM_CONF": "c"}
    assert scrubbed(defaults | {"SLURM_JOB_ID": "1"}, inside_job=False) == defaults
