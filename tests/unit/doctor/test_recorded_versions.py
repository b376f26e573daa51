"""Every parser reads what SLURM 24.11, 25.11 and 26.05 printed on the rig."""

import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from hpml_jobs.core.cell import Outcome
from hpml_jobs.slurm.jobs import (
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    UNKNOWN_ID,
    is_unknown_job,
    parse_sacct,
    parse_squeue,
)
from hpml_jobs.slurm.nodes import (
    SINFO_FORMAT,
    parse_limits,
    parse_sinfo,
    parse_time_limits,
)
from hpml_jobs.slurm.pending import YOU, why_pending
from hpml_jobs.status import query
from hpml_jobs.submit import explain, send

RECORDED = Path(__file__).parents[2] / "data/slurm"

ENDS = {
    "ok": Outcome.MISSING,
    "two": Outcome.MISSING,
    "high": Outcome.MISSING,
    "preempted": Outcome.MISSING,
    "requeued": Outcome.MISSING,
    "code137": Outcome.FAILED,
    "code28": Outcome.FAILED,
    "killed": Outcome.FAILED,
    "memory": Outcome.FAILED,
    "cancelled": Outcome.CANCELLED,
    "cancelled_pending": Outcome.CANCELLED,
    "time": Outcome.TIMEOUT,
    "array": Outcome.RUNNING,
    "after": Outcome.PENDING,
    "held": Outcome.PENDING,
    "big": Outcome.PENDING,
}
"""The outcome of each recorded job, by name; a completed one without a record is missing."""


class Recorded(NamedTuple):
    """The answer of a recorded command."""

    text: str
    error: str
    code: int


@pytest.fixture(params=sorted(RECORDED.glob("*.txt")), ids=lambda path: path.stem)
def recorded(request):
    """Return a function from the words of a command to its recorded answer."""
    answers = {}
    for part in request.param.read_text().removeprefix("$ ").split("\n$ "):
        head, _, printed = part.partition("\n")
        command, code = head.rsplit(" -> ", 1)
        lines = f"{printed}\n".splitlines(keepends=True)
        error = "".join(line[3:] for line in lines if line.startswith("2> "))
        text = "".join(line for line in lines if not line.startswith("2> "))
        answers.setdefault(command, Recorded(text, error, int(code)))
    return lambda *words: answers[shlex.join(words)]


def by_name(jobs):
    return {
        job.name: job
        for number, job in jobs.items()
        if number.partition("_")[2] in ("", "0")
    }


def accounted(recorded):
    # 12 is a task's own
    ids = ",".join(str(number) for number in range(1, 18) if number != 12)
    return parse_sacct(
        recorded("sacct", "-X", "-D", "-P", "-n", "-o", SACCT_FIELDS, "-j", ids).text
    )


def test_every_job_has_its_outcome_in_squeue_and_sacct(recorded):
    queued = parse_squeue(
        recorded("squeue", "-r", "-t", "all", "-o", SQUEUE_FORMAT).text
    )
    for jobs in (queued, accounted(recorded)):
        assert {name: job.outcome for name, job in by_name(jobs).items()} == ENDS
        assert [jobs[f"8_{task}"].outcome for task in (1, 2, 3, 4)] == [
            Outcome.PENDING
        ] * 4
    reasons = {name: job.reason for name, job in by_name(queued).items()}
    assert why_pending(reasons["held"]).who == YOU
    assert why_pending(reasons["after"]).text.startswith("can never start")
    assert why_pending(reasons["big"]).text.startswith("next in the queue")


def test_accounting_has_times_gpus_and_earlier_runs(recorded):
    jobs = by_name(accounted(recorded))
    assert (jobs["ok"].gpus, jobs["two"].gpus, jobs["two"].node) == (
        2,
        2,
        "gr[001-002]",
    )
    assert jobs["code137"].exit_code in ("9:0", "137:0")  # the latter from 25.11 on
    assert (jobs["killed"].exit_code, jobs["memory"].exit_code) == ("0:9", "0:9")
    assert jobs["time"].elapsed_s > jobs["time"].minutes * 60 == 60
    assert (jobs["cancelled_pending"].started, jobs["cancelled_pending"].elapsed_s) == (
        None,
        None,
    )
    assert len(jobs["preempted"].earlier_s) == len(jobs["requeued"].earlier_s) == 1
    assert jobs["array"].ended is None


def test_unknown_jobs_are_told_from_an_absent_controller(recorded):
    for job in ("8_99", "99999"):
        answer = recorded("scontrol", "show", "job", job)
        assert (answer.code, is_unknown_job(job, answer.text, answer.error)) == (
            1,
            True,
        )
    queue = ("squeue", "-r", "-t", "all", "-o", "%i", "-j")
    assert UNKNOWN_ID in recorded(*queue, "99999").error
    assert not is_unknown_job("3", *recorded(*queue, "3")[:2])


def test_nodes_partitions_and_limits_are_read(recorded):
    nodes = parse_sinfo(recorded("sinfo", "-h", "-N", "-o", SINFO_FORMAT).text)
    assert [(node.name, node.gpu_type, node.gpus) for node in nodes] == [
        ("gr001", "rtx8000", 4),
        ("gr002", "rtx8000", 4),
        ("gv001", "v100", 2),
    ]
    assert nodes[0].partitions == {"main", "preempt"}
    assert parse_time_limits(recorded("sinfo", "-h", "-o", "%P|%l").text) == {
        "main": 60,
        "": 60,
    }
    limits = parse_limits(recorded("scontrol", "show", "config").text)
    assert (limits["ClusterName"], limits["MaxArraySize"]) == ("rig", "64")


def test_answers_of_sbatch_and_its_log_path_are_read(recorded):
    wrap = ("--wrap=true", "--output=/dev/null")
    assert send.job_id(recorded("sbatch", *wrap).text) == "18"
    start = explain.ACCEPTED.search(recorded("sbatch", "--test-only", *wrap).error)
    assert (start[1].isdecimal(), start[2], start[3]) == (True, "gr001", "main")
    refusal = send.slurm_message(recorded("sbatch", "--gres=gpu:h100:1", *wrap).error)
    assert refusal.endswith("Requested node configuration is not available")
    shown = recorded("scontrol", "show", "job", "8_0").text
    assert query.output_path(shown) == "/tmp/8_0_log.out"
