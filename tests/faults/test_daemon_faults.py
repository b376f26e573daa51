"""Faults of the cluster: nodes drained or gone, SLURM's daemons and their database away."""

import os
import shutil
import signal
import time

import pytest

from tests.conftest import Program
from tests.faults.conftest import desk_for
from tests.faults.fault_study import Case, stand_in, wait_until
from tests.rig import Accounting, Rig, missing

pytestmark = [pytest.mark.journey, pytest.mark.fault, pytest.mark.long]

ONE = ("gpus=1", "batch=16")


def test_submit_controller_restart_loses_no_cell(breakable, ledger) -> None:
    case: Case = breakable("sending", "-m", "gpus=1,2", "batch=16")
    rig, folder = case.rig, case.desk.folder / "slow"
    real = shutil.which("sbatch", path=rig.env["PATH"])
    wait = f"touch {folder}/asked; until [ -e {folder}/away ]; do sleep 0.1; done"
    stand_in(folder, f'[ -e {folder}/once ] && {{ {wait}; }}; touch {folder}/once\n{real} "$@"')
    sending = case.begin(PATH=f"{folder}:{rig.env['PATH']}")
    wait_until((folder / "asked").exists, "one array is out, the next is on its way")
    rig.stop_daemon("slurmctld")
    (folder / "away").touch()
    time.sleep(2)  # sbatch asks, and nobody answers
    rig.start_daemon("slurmctld")
    _, complaint = sending.communicate(timeout=120)
    assert sending.returncode in (0, 1), complaint  # SLURM's own patience decides
    case.finish()
    case.send().finish()  # the same command sends what is not there
    ledger(
        "slurmctld restarted during submission", case, "2 ok", "the same command submits the rest"
    )


def test_run_controller_outage_loses_no_cell(breakable, ledger) -> None:
    case: Case = breakable("running", *ONE, model="Held").send()
    rig = case.rig
    case.wait_held(1)
    assert case.state["outcome"] == "running"
    rig.stop_daemon("slurmctld")
    away = case.state
    assert away["outcome"] == "unknown"
    assert away["reason"]
    rig.start_daemon("slurmctld")
    wait_until(lambda: case.state["outcome"] == "running", "it is told of again")
    os.kill(rig.pids["slurmctld"], signal.SIGSTOP)
    try:
        silent = case.state
    finally:
        os.kill(rig.pids["slurmctld"], signal.SIGCONT)
    assert silent["outcome"] == "unknown"
    assert silent["reason"]
    case.finish()
    ledger(
        "slurmctld silent, then restarted, during the run", case, "1 ok", "unknown until it answers"
    )


def test_drained_nodes_finish_running_cells_and_start_none(breakable, ledger) -> None:
    words = ("-m", "gpus=4", "batch=4,8", "cluster.array_parallelism=1")
    case: Case = breakable("drained", *words, model="Held").send()
    case.wait_held(4)
    nodes = ("gr001", "gr002")
    case.rig.drain(*nodes)
    case.let_go()
    wait_until(lambda: _outcomes(case) == ["ok", "pending"], "one has ended, one waits")
    (waiting,) = [s for s in case.states().values() if s["outcome"] == "pending"]
    assert waiting["reason"]
    case.rig.resume(*nodes)
    case.finish()
    ledger("node drained", case, "2 ok", "running cells finish, others stay pending")


def _outcomes(case: Case) -> list[str]:
    return sorted(state["outcome"] for state in case.states().values())


def test_killed_slurmd_requeues_cell_on_another_node(breakable, ledger) -> None:
    case: Case = breakable("slurmd", *ONE, model="Held").send()
    case.wait_held(1)
    node = case.state["node"]
    case.rig.kill_daemon(node)
    again = "*/held-*.r1-*"  # the first attempt lives on: only its slurmd is gone
    wait_until(lambda: list(case.study.cells_folder.glob(again)), "it has begun on another node")
    (slug,) = case.finish()
    record = case.study.cell(slug).read_record()
    assert record is not None
    assert record.attempt.restart == 1
    assert record.attempt.hosts != (node,)
    case.rig.start_daemon(node)
    ledger(
        "slurmd killed",
        case,
        "1 ok",
        "the record is the second attempt's; the orphan's is not used",
    )


def test_lost_node_cell_is_resubmitted_by_followup_job(breakable, ledger) -> None:
    """A cell whose node never returns is resubmitted by the follow-up job."""
    words = (*ONE, "cluster.requeue=false", "retries=1")
    case: Case = breakable("retried", *words, model="Held").send()
    case.wait_held(1)
    first, node = case.job, case.state["node"]
    case.rig.kill_daemon(node)

    def sent_again() -> bool:
        return any(not mark.name.startswith(f"held-{first}.") for mark in case.held())

    wait_until(sent_again, "the closing job has sent it again")
    (slug,) = case.finish()
    record = case.study.cell(slug).read_record()
    assert record is not None
    assert record.attempt.job != first
    assert record.attempt.hosts != (node,)
    history = case.study.history()
    assert (dict(history.retries), history.excluded) == ({slug: 1}, (node,))
    wait_until((case.study.report / "tables.md").exists, "the report is written")
    case.rig.start_daemon(node)
    ledger(
        "slurmd killed, no requeue, retries=1",
        case,
        "1 ok",
        "resubmitted to another node by the collect_after job",
    )


@pytest.mark.parametrize("daemon", ["slurmdbd", "mariadbd"])
def test_states_while_slurmdbd_is_down_are_correct(breakable, ledger, daemon: str) -> None:
    case: Case = breakable(daemon, "-m", "gpus=2", "batch=16,32", model="blocking_models:Picky")
    case.rig.stop_daemon(daemon)
    case.send()
    states = case.finish()
    told = {slug: (state["outcome"], state["reason"]) for slug, state in states.items()}
    assert [told[slug][0] for slug in sorted(told)] == ["ok", "failed"], told
    case.rig.start_daemon(daemon)
    jobs = [state["job"] for state in states.values()]
    for job, ended in zip(jobs, ("COMPLETED", "FAILED"), strict=True):
        case.rig.wait_for_state(job, {ended})
    ledger(f"{daemon} stopped", case, "1 failed, 1 ok", "reported correctly during the outage too")


def test_states_without_accounting_are_correct(
    tmp_path_factory: pytest.TempPathFactory, ledger
) -> None:
    if reason := missing():
        pytest.skip(reason)
    with Rig(accounting=Accounting.NONE) as rig:
        there: Program = desk_for(rig, tmp_path_factory.mktemp("bare"))
        case = Case(
            there, rig, "bare", "-m", "gpus=2", "batch=16,32", model="blocking_models:Picky"
        ).send()
        gone = Case(there, rig, "gone", *ONE, model="Held").send()
        gone.wait_held(1)
        rig.run("scancel", gone.job).check_returncode()
        gone.finish()
        ledger("scancel on a cluster without accounting", gone, "1 cancelled")
        case.finish()
        ledger("a cluster without accounting", case, "1 failed, 1 ok")
