"""Faults of the cluster: drained or lost nodes, SLURM daemons or their database down."""

import os
import shutil
import signal
import time

import pytest

from tests.faults.conftest import login_program
from tests.faults.fault_study import FaultStudy, write_fake_sbatch
from tests.patience import PATIENCE_S, wait_until
from tests.rig import Accounting, Rig, missing_requirement

pytestmark = [pytest.mark.journey, pytest.mark.fault, pytest.mark.long]

ONE = ("gpus=1", "batch=16")


def test_submit_controller_restart_loses_no_cell(breakable_study, record_fault):
    case = breakable_study("sending", "-m", "gpus=1,2", "batch=16")
    rig, folder = case.rig, case.login.folder / "slow"
    real = shutil.which("sbatch", path=rig.env["PATH"])
    wait = f"touch {folder}/asked; until [ -e {folder}/away ]; do sleep 0.1; done"
    write_fake_sbatch(
        folder,
        f'[ -e {folder}/once ] && {{ {wait}; }}; touch {folder}/once\n{real} "$@"',
    )
    sending = case.start_submit(PATH=f"{folder}:{rig.env['PATH']}")
    wait_until(
        (folder / "asked").exists, "one array is submitted, the next is being submitted"
    )
    rig.stop_daemon("slurmctld")
    (folder / "away").touch()
    time.sleep(2)  # sbatch gets no answer
    rig.start_daemon("slurmctld")
    _, complaint = sending.communicate(timeout=PATIENCE_S)
    assert sending.returncode in (0, 1), complaint  # depends on SLURM's own time-outs
    case.wait_until_finished()
    case.submit().wait_until_finished()  # the same command submits the rest
    record_fault(
        "slurmctld restarted during submission",
        case,
        "2 ok",
        "the same command submits the rest",
    )


def test_run_controller_outage_loses_no_cell(breakable_study, record_fault):
    case = breakable_study("running", *ONE, model="Blocking").submit()
    rig = case.rig
    case.wait_until_blocked(1)
    assert case.state["outcome"] == "running"
    rig.stop_daemon("slurmctld")
    try:
        stopped = case.state
        refused = case.login(*case.words)
    finally:
        rig.start_daemon("slurmctld")
    wait_until(lambda: case.state["outcome"] == "running", "it is running again")
    os.kill(rig.pids["slurmctld"], signal.SIGSTOP)
    try:
        silent = case.state
    finally:
        os.kill(rig.pids["slurmctld"], signal.SIGCONT)
    # sacct's RUNNING is believed; where it has none, the state is unknown
    assert {stopped["outcome"], silent["outcome"]} <= {"running", "unknown"}
    assert refused.returncode == 1
    assert "it is unknown which cells have a job" in refused.stderr
    case.wait_until_finished()
    record_fault(
        "slurmctld silent, then restarted, during the run",
        case,
        "1 ok",
        "no second job",
    )


def test_drained_nodes_finish_running_cells_and_start_none(
    breakable_study, record_fault
):
    words = ("-m", "gpus=4", "batch=4,8", "cluster.isolate=serial")
    case = breakable_study("drained", *words, model="Blocking").submit()
    case.wait_until_blocked(4)
    nodes = ("gr001", "gr002")
    case.rig.drain(*nodes)
    case.release()
    wait_until(
        lambda: _outcomes(case) == ["ok", "pending"], "one is finished, one is pending"
    )
    (waiting,) = [s for s in case.states().values() if s["outcome"] == "pending"]
    assert waiting["reason"]
    case.rig.resume(*nodes)
    case.wait_until_finished()
    record_fault(
        "node drained", case, "2 ok", "running cells finish, others stay pending"
    )


def _outcomes(case):
    return sorted(state["outcome"] for state in case.states().values())


def test_killed_slurmd_requeues_cell_on_another_node(breakable_study, record_fault):
    case = breakable_study("slurmd", *ONE, model="Blocking").submit()
    case.wait_until_blocked(1)
    node = case.state["node"]
    case.rig.kill_daemon(node)
    # the first attempt still runs: only its slurmd was killed
    case.wait_until_blocked(1, attempt="r1")
    (slug,) = case.wait_until_finished()
    record = case.study.cell(slug).read_record()
    assert record is not None
    assert record.attempt.restart == 1
    assert record.attempt.hosts != (node,)
    case.rig.start_daemon(node)
    record_fault(
        "slurmd killed",
        case,
        "1 ok",
        "the record is the second attempt's; the orphan's is not used",
    )


def test_lost_node_cell_is_resubmitted_by_followup_job(breakable_study, record_fault):
    """A cell whose node never returns is resubmitted by the follow-up job."""
    words = ("gpus=auto", "max_gpus=1", "batch=16", "+cluster.sbatch.no-requeue=true")
    case = breakable_study("retried", *words, model="Blocking").submit()
    case.wait_until_blocked(1)
    first, node = case.job, case.state["node"]
    case.rig.kill_daemon(node)

    def is_resubmitted():
        return any(
            not mark.name.startswith(f"blocked-{first}.")
            for mark in case.blocked_ranks()
        )

    wait_until(is_resubmitted, "the follow-up job has resubmitted it")
    (slug,) = case.wait_until_finished()
    record = case.study.cell(slug).read_record()
    assert record is not None
    assert record.attempt.job != first
    assert record.attempt.hosts != (node,)
    history = case.study.history()
    assert (dict(history.retries), [*history.excluded]) == ({slug: 1}, [node])
    wait_until((case.study.report / "report.md").exists, "the report is written")
    case.rig.start_daemon(node)
    record_fault(
        "slurmd killed, no requeue, gpus=auto",
        case,
        "1 ok",
        "resubmitted to another node by the follow-up job",
    )


@pytest.mark.parametrize("daemon", ["slurmdbd", "mariadbd"])
def test_states_while_slurmdbd_is_down_are_correct(
    breakable_study, record_fault, daemon
):
    case = breakable_study(
        daemon,
        "-m",
        "gpus=2",
        "batch=16,32",
        model="blocking_models:FailsUnlessBatch16",
    )
    case.rig.stop_daemon(daemon)
    case.submit()
    states = case.wait_until_finished()
    outcomes = {
        slug: (state["outcome"], state["reason"]) for slug, state in states.items()
    }
    assert [outcomes[slug][0] for slug in sorted(outcomes)] == ["ok", "failed"], (
        outcomes
    )
    case.rig.start_daemon(daemon)
    jobs = [state["job"] for state in states.values()]
    for job, ended in zip(jobs, ("COMPLETED", "FAILED"), strict=True):
        case.rig.wait_for_state(job, {ended})
    record_fault(
        f"{daemon} stopped",
        case,
        "1 failed, 1 ok",
        "reported correctly during the outage too",
    )


def test_states_without_accounting_are_correct(tmp_path_factory, record_fault):
    if reason := missing_requirement():
        pytest.skip(reason)
    with Rig(accounting=Accounting.NONE) as rig:
        login = login_program(rig, tmp_path_factory.mktemp("bare"))
        case = FaultStudy(
            login,
            rig,
            "bare",
            "-m",
            "gpus=2",
            "batch=16,32",
            model="blocking_models:FailsUnlessBatch16",
        ).submit()
        gone = FaultStudy(login, rig, "gone", *ONE, model="Blocking").submit()
        gone.wait_until_blocked(1)
        rig.run("scancel", gone.job).check_returncode()
        gone.wait_until_finished()
        record_fault("scancel on a cluster without accounting", gone, "1 cancelled")
        case.wait_until_finished()
        record_fault("a cluster without accounting", case, "1 failed, 1 ok")
