"""Jobs as SLURM 22.05 printed them (recorded on the test SLURM), and the same in other formats."""

import pytest

from hpml_jobs.core.cell import Outcome
from hpml_jobs.slurm.jobs import parse_sacct, parse_squeue
from hpml_jobs.slurm.pending import ADMINS, YOU, why_pending
from tests.unit.slurm_output import sacct_line

SQUEUE = """\
JOBID|STATE|SUBMIT_TIME|START_TIME|TIME|TIME_LIMIT|NODELIST|REASON
1_3|CANCELLED|1795279247|1795279247|0:03|2:00|gr002|None
5|CANCELLED|1795279247|1795279250|0:00|1:00:00||JobHeldUser
1_0|COMPLETED|1795279247|1795279247|0:04|2:00|gr001|None
4|PENDING|1795279247|1795282847|0:00|1:00:00||BeginTime
6|PENDING|1795279247|N/A|0:00|1:00:00||PartitionNodeLimit
7|PENDING|1795279247|N/A|0:00|UNLIMITED||ReqNodeNotAvail, UnavailableNodes:gr[001-002]
2|RUNNING|1795279247|1795279252|1-00:00:04|2:00|gr[001-002]|None
slurm_load_jobs error: something

"""

SACCT = """\
2|RUNNING|0:0|gr[001-002]|1795279247|1795279252|Unknown|4|2|billing=2,cpu=2,gres/gpu:rtx8000=8,gres/gpu=8,mem=800M,node=2
3|PENDING|0:0|None assigned|1795279247|Unknown|Unknown|0|Partition_Limit|
5|CANCELLED by 0|0:0|None assigned|1795279247|1795279250|1795279250|0|Partition_Limit|
1_0|PREEMPTED|0:0|gr001|1795279247|1795279247|1795279251|4|2|billing=1,cpu=1,gres/gpu=2
1_0|COMPLETED|0:0|gr002|1795279247|1795279277|1795279297|20|2|billing=1,cpu=1,gres/gpu:v100=2
1_3|CANCELLED by 1000|0:15|gr002|2026-11-21T16:40:47|2026-11-21T16:40:50|Unknown|3|2|billing=1,cpu=1
17_2|OUT_OF_MEMORY|0:0|gr001|1795279247|1795279247|1795279251|4|2|billing=1,cpu=1
17_[3-5%2]|PENDING|0:0|None assigned|1795279247|Unknown|Unknown|0|2|
"""


def test_squeue_lists_each_task_including_ended_ones():
    jobs = parse_squeue(SQUEUE)
    assert list(jobs) == ["1_3", "5", "1_0", "4", "6", "7", "2"]
    assert [job for job, state in jobs.items() if state.over] == ["1_3", "5", "1_0"]
    assert (jobs["2"].node, jobs["2"].minutes, jobs["2"].elapsed_s) == (
        "gr[001-002]",
        2,
        86_404,
    )
    assert (jobs["2"].queued_s, jobs["2"].ended) == (5, None)
    assert jobs["1_0"].ended == 1795279251


def test_pending_job_has_no_start_but_maybe_an_estimate():
    jobs = parse_squeue(SQUEUE)
    assert (jobs["4"].starts, jobs["4"].started, jobs["4"].queued_s) == (
        1795282847,
        None,
        None,
    )
    assert (jobs["6"].starts, jobs["6"].reason) == (None, "PartitionNodeLimit")
    assert jobs["7"].minutes is None
    assert jobs["7"].reason == "ReqNodeNotAvail, UnavailableNodes:gr[001-002]"


def test_sacct_has_canceller_and_last_line_of_requeued_job():
    jobs = parse_sacct(SACCT)
    assert (jobs["1_0"].state, jobs["1_0"].node, jobs["1_0"].gpus) == (
        "COMPLETED",
        "gr002",
        2,
    )
    assert jobs["1_0"].queued_s == 30
    assert jobs["1_3"].state == "CANCELLED by 1000"
    assert jobs["17_2"].outcome is Outcome.OOM
    assert {jobs[f"17_{task}"].outcome for task in (3, 4, 5)} == {Outcome.PENDING}
    assert (jobs["2"].gpus, jobs["2"].minutes, jobs["2"].ended) == (8, 2, None)
    assert (jobs["3"].minutes, jobs["3"].gpus, jobs["3"].node) == (None, None, "")


def test_task_that_runs_is_not_pending_by_the_row_of_its_array():
    running = "RUNNING|0:0|gr002|1795279247|1795279250|Unknown|7|10|gres/gpu=1"
    pending = "PENDING|0:0|None assigned|1795279247|Unknown|Unknown|0|10|"
    rows = f"17_1|{running}\n17_[1-2%1]|{pending}\n"
    jobs = parse_sacct(rows)
    assert (jobs["17_1"].state, jobs["17_1"].earlier_s) == ("RUNNING", ())
    assert jobs["17_2"].outcome is Outcome.PENDING


def test_job_cancelled_while_pending_has_no_start():
    for job in (parse_sacct(SACCT)["5"], parse_squeue(SQUEUE)["5"]):
        assert (job.started, job.queued_s, job.elapsed_s, job.over) == (
            None,
            None,
            None,
            True,
        )


@pytest.mark.parametrize(
    ("reason", "text", "who"),
    [
        ("Priority", "jobs with a higher priority come first", ""),
        ("Dependency", "starts after the jobs", ""),
        ("PartitionTimeLimit", "more minutes", YOU),
        ("ReqNodeNotAvail,_Reserved_for_maintenance", "maintenance", ""),
        ("No suitable topology unit found for segment", "close together", ""),
        ("JobHeldAdmin", "held by an administrator", ADMINS),
        ("QOSMaxJobsPerUserLimit", "your running jobs have reached your limit", ""),
        ("QOSMaxWallDurationPerJobLimit", "more than one job may have", YOU),
        ("QOSGrpBillingMinutes", "budget", "the owner of the account"),
    ],
)
def test_pending_reason_is_explained_with_who_must_act(reason, text, who):
    pending = why_pending(reason)
    assert text in pending.text
    assert pending.text.endswith(f"({reason})")
    assert pending.who == who


def test_unknown_pending_reason_is_shown_verbatim():
    assert str(why_pending("PhaseOfTheMoon")) == "PhaseOfTheMoon"


def test_row_of_another_job_with_the_same_id_does_not_hide_ours():
    """After the ids began anew, `sacct -D` lists both."""
    rows = sacct_line("5", "TIMEOUT", name="hpml-mine") + sacct_line(
        "5", "RUNNING", name="other"
    )
    for text in (rows, "".join(reversed(rows.splitlines(keepends=True)))):
        job = parse_sacct(text, lambda state: state.name == "other")["5"]
        assert (job.state, job.name, job.earlier_s) == ("TIMEOUT", "hpml-mine", ())
