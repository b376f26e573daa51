"""Cells over machines without SLURM that ssh reaches: training, faults of hosts, endings."""

import json
import signal
import subprocess
import sys

import pytest

from hpml_jobs.study.study import Study
from tests.patience import PATIENCE_S, wait_until

CELL = ("workload=digits", "batch=16", "loader_workers=0")


@pytest.fixture(scope="module")
def printed(hosts):
    """What a command printed that was given twice at once."""
    program = hosts.program
    small = (*CELL, "data.limit=512", "probe_s=0.1", "study=three")
    words = ("-m", "cluster.hosts=[a,b,c]", "gpus=2,3", *small)
    begun = [
        subprocess.Popen(
            [program.python, "-m", "hpml_jobs", *words],
            cwd=program.folder,
            env=program.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    return [process.communicate(timeout=PATIENCE_S)[0] for process in begun]


def test_cells_train_on_two_and_three_hosts(hosts, printed):
    records = [
        cell.read_record() for cell in Study(hosts.folder / "outputs/three").cells()
    ]
    assert [sorted(rank.host for rank in r.ranks) for r in records] == [
        [*"ab"],
        [*"abc"],
    ]
    assert "2 nodes" in hosts.program.ok("collect", "three")
    wait_until(lambda: not hosts.processes(), "no process is left on a host")


def test_command_given_twice_at_once_runs_each_cell_once(hosts, printed):
    """The second one leaves the cells out, whichever takes the lock first."""
    assert sorted(text.splitlines()[0] for text in printed) == [
        "study three: 0 cells to run, 2 left out (finished, pending or running)",
        "study three: 2 cells to run",
    ]
    cells = Study(hosts.folder / "outputs/three").cells()
    assert [len([*cell.attempts.glob("*.r0")]) for cell in cells] == [1, 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "[a,silent]",
            "silent: connect to host silent port 22: No route to host: start sshd there",
        ),
        ("[refused]", "refused port 22: Connection refused: start sshd there"),
        ("[a,nowhere]", "nowhere: Could not resolve hostname nowhere"),
        ("[a,locked]", "locked: root@10.0.0.1: Permission denied (publickey,password"),
        (
            "[stranger]",
            "Host key verification failed: run ssh stranger once, and check its key",
        ),
        ("[a,twin]", "twin and a are the same machine: name each machine once"),
        (
            "[a,e,f]",
            "e cannot connect to f (timed out), f cannot connect to e (timed out): open",
        ),
        (
            "[a,b] cluster.python=/absent",
            "b: bash: line 1: /absent: No such file or directory",
        ),
        (
            "[a,b] cluster.python=/bin/python3",
            "No module named 'hpml_jobs'): install hpml_jobs",
        ),
        ("[a,b] cluster.python={folder}/other", ": torch differs (a "),
        (
            "[a,b] outputs=private",
            "/private/bad is not shared with a, b: mount it there",
        ),
    ],
)
def test_fault_of_hosts_is_one_line_and_leaves_no_study(hosts, words, message):
    other = hosts.folder / "site/torch-1.0.dist-info"
    if not other.exists():
        other.mkdir(parents=True)
        (other / "METADATA").write_text("Name: torch\nVersion: 1.0\n")
        on_b = '[ "${SSH_CONNECTION#* 10.0.0.2 }" = "$SSH_CONNECTION" ] || '
        path = f"export PYTHONPATH={other.parent}"
        script = hosts.folder / "other"
        script.write_text(f'#!/bin/sh\n{on_b}{path}\nexec {sys.executable} "$@"\n')
        script.chmod(0o755)
    words = words.format(folder=hosts.folder).split()
    done = hosts.program(f"cluster.hosts={words[0]}", *words[1:], *CELL, "study=bad")
    assert message in done.stderr.splitlines()[-1]
    assert done.returncode in (1, 2)
    assert not (hosts.folder / "outputs/bad").exists()
    wait_until(lambda: not hosts.processes(), "no process is left on a host")


def test_doctor_checks_the_hosts(hosts):
    done = hosts.program("doctor", "cluster.hosts=[a,b]", "--no-job", *CELL)
    assert "ok      hosts          a, b answer, share " in done.stdout


def test_run_is_for_this_machine(hosts):
    done = hosts.program("run", "cluster.hosts=[a,b]", *CELL)
    assert "run is for this machine: leave the word run out" in done.stderr


ENDLESS = """
import time
open("begun", "w").close()
time.sleep(9999)
"""


@pytest.mark.parametrize("ending", ["interrupt", "kill", "cut"])
def test_ending_leaves_no_process_on_hosts(hosts, ending):
    """Also none of a script, which knows nothing of the program: the one that is killed."""
    program, study = hosts.program, Study(hosts.folder / "outputs" / ending)
    cell, begun = (*CELL, "epochs=9999"), (study.cells_folder, "*/*/*/progress.json")
    if ending == "kill":
        begun = (hosts.folder, "begun")
        (hosts.folder / "endless.py").write_text(ENDLESS)
        cell = ("script=endless.py", "batch=16", "shared_files=true")
    words = ("cluster.hosts=[a,b]", "gpus=2", f"study={ending}")
    command = [program.python, "-m", "hpml_jobs", *words, *cell]
    with subprocess.Popen(
        command, cwd=program.folder, env=program.environment
    ) as running:
        wait_until(
            lambda: any(begun[0].glob(begun[1])),
            "the cell has begun",
            has_ended=lambda: running.poll() is not None,
        )
        assert "running" in program.ok("status", ending)
        assert hosts.processes("a")
        assert hosts.processes("b")
        if ending == "cut":
            hosts.cut("b")
        else:
            running.send_signal(
                signal.SIGINT if ending == "interrupt" else signal.SIGKILL
            )
        try:
            running.wait(PATIENCE_S)
        finally:
            running.kill()
    wait_until(lambda: not hosts.processes(), "no process is left on a host")
    code, outcome = {
        "interrupt": (130, "cancelled"),
        "kill": (-signal.SIGKILL, "cancelled"),
        "cut": (1, "node_fail"),
    }[ending]
    assert running.returncode == code
    (cell,) = json.loads(program.ok("status", ending, "--json"))["cells"]
    assert cell["outcome"] == outcome
    assert ending != "cut" or cell["reason"].startswith("b: the connection was lost")
