"""On the node: how workers are started, how their end is judged, and whose record counts."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import msgspec
import pytest

from hpml_jobs import __version__
from hpml_jobs.core.cell import CellFile, Outcome
from hpml_jobs.core.cluster import Shape
from hpml_jobs.core.record import Attempt, Neighbours
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.validation import decode
from hpml_jobs.job import workers as job_workers
from hpml_jobs.job.end import apply_time_limit, judge, keep_measured
from hpml_jobs.job.run import attempt_cell
from hpml_jobs.job.workers import (
    Callbacks,
    Job,
    run_workers,
    worker_command,
    worker_environment,
)
from hpml_jobs.study.cell_folder import AttemptEnd, AttemptFolder, RankError
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.study import Study
from tests.patience import PATIENCE_S, wait_until
from tests.unit.builders import a_cell, a_record
from tests.unit.study_builder import write_record

ONE = Job(id="101_0", restart=0, node=0)


@pytest.fixture
def cell_folder(working_folder):
    """A cell that was submitted."""
    return planned_cell(working_folder, a_cell())


def planned_cell(desk, of, **changes):
    study = Study(desk / "outputs" / "mine")
    study.create()
    folder = study.cell(of.slug)
    write_whole(
        folder.cell_json,
        encode(CellFile(cell=of, data_root="", code_root="", **changes)),
    )
    return folder


@pytest.fixture(autouse=True)
def slurm_job_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "101")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    monkeypatch.setenv("SLURM_JOB_ID", "105")


def replace_workers(monkeypatch, code):
    """Instead of the workers: Python code with the cell's folder and the attempt in sys.argv."""

    def command(of, root, attempt, job):
        return [sys.executable, "-c", code, str(root), attempt.id]

    monkeypatch.setattr(job_workers, "worker_command", command)


def replace_workers_writing_record(monkeypatch, tmp_path, content, then=""):
    """Workers that leave a record, and then do something or end well."""
    (tmp_path / "left").write_bytes(content)
    replace_workers(
        monkeypatch,
        "import sys, shutil, pathlib; root, attempt = sys.argv[1:]\n"
        f"shutil.copy({str(tmp_path / 'left')!r}, f'{{root}}/attempts/{{attempt}}/record.json')\n"
        f"{then}",
    )


# ---- who am I ----


def test_job_id_has_array_task_and_restart(monkeypatch):
    assert Job.current() == ONE
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    monkeypatch.setenv("SLURM_NODEID", "1")
    assert Job.current() == Job("101_0", 2, 1)
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID")
    assert Job.current().id == "105"


def test_local_run_inside_allocation_keeps_local_id(monkeypatch):
    monkeypatch.setenv("HPML_JOBS_JOB", "local-17-1700000000")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    assert Job.current() == Job("local-17-1700000000", 0, 0)


# ---- commands ----


@pytest.mark.parametrize(
    "of",
    [a_cell(gpus=1, strategy=Strategy.SINGLE), a_cell(strategy=Strategy.DP)],
    ids=["single", "dp"],
)
def test_single_and_dp_run_as_one_plain_process(of):
    command = worker_command(
        of, Path("/s/c"), AttemptFolder(Path("/s/c/attempts/101_0.r0")), ONE
    )
    assert command == [sys.executable, "-m", "hpml_jobs.worker", "/s/c", "101_0.r0"]


def test_ddp_on_one_node_uses_standalone_torchrun():
    attempt = AttemptFolder(Path("/s/c/attempts/101_0.r0"))
    command = worker_command(a_cell(), Path("/s/c"), attempt, ONE)
    assert command[1:3] == ["-m", "hpml_jobs.worker.agent"]
    assert {"--standalone", "--local-addr=127.0.0.1", "--max-restarts=0"} <= set(
        command
    )
    assert command[command.index("--nproc-per-node") + 1] == "4"
    assert command[command.index("--log-dir") + 1] == "/s/c/attempts/101_0.r0/ranks"
    assert command[-4:] == ["-m", "hpml_jobs.worker", "/s/c", "101_0.r0"]


@pytest.mark.parametrize("node", [0, 1])
def test_ddp_on_two_nodes_uses_first_host_as_rendezvous(node, monkeypatch):
    monkeypatch.setenv("HPML_JOBS_HOSTS", "gr007 gr009 ")
    monkeypatch.setenv("SLURMD_NODENAME", "gr007" if node == 0 else "gr009")
    attempt = AttemptFolder(Path("/s/c/attempts/101_0.r1"))
    command = worker_command(
        a_cell(nodes=2), Path("/s/c"), attempt, Job("101_0", 1, node)
    )
    assert {
        "--nnodes=2",
        f"--local-addr={('gr007', 'gr009')[node]}",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=gr007:20105",
        "--rdzv-id=101_0_1",
        f"--rdzv-conf=is_host={1 - node},read_timeout=300,join_timeout=900",
    } <= set(command)
    assert command[command.index("--nproc-per-node") + 1] == "2"
    assert not any(word.startswith(("--standalone", "--node-rank")) for word in command)


def test_worker_environment_has_equal_threads_and_no_slurm(
    monkeypatch,
):
    """SLURM's variables reach the workers only as facts, not as environment."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("SLURMD_NODENAME", "gr001")
    environment = worker_environment(a_cell(threads=3))
    assert (environment["OMP_NUM_THREADS"], environment["MKL_NUM_THREADS"]) == (
        "3",
        "3",
    )
    assert environment["NCCL_DEBUG"] == "INFO"
    assert not {"RANK", "SLURM_JOB_ID"} & environment.keys()
    assert json.loads(environment["HPML_JOBS_SLURM"])["SLURM_JOB_ID"] == "105"
    assert environment["HPML_JOBS_HOST"] == "gr001"
    assert (
        0
        < float(environment["HPML_JOBS_JOB_STARTED"])
        < time.clock_gettime(time.CLOCK_BOOTTIME)
    )
    assert "SLURMD_NODENAME" not in environment


# ---- how an attempt ends ----


def test_successful_attempt_publishes_its_record(cell_folder, tmp_path, monkeypatch):
    replace_workers_writing_record(monkeypatch, tmp_path, encode(a_record(a_cell())))
    end = attempt_cell(cell_folder)
    assert end.outcome is Outcome.OK
    assert cell_folder.read_record() == a_record(a_cell())
    latest = cell_folder.latest_attempt()
    assert latest is not None
    assert latest.id == "101_0.r0"
    assert latest.read_end() == end


SQUEUE = """\
#!/bin/sh
echo "$@" >> "$0.asked"
{answer}
"""


def put_squeue_on_path(folder, monkeypatch, answer):
    command = folder / "squeue"
    command.write_text(SQUEUE.format(answer=answer))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("SLURM_JOB_ID", "105")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gr[001-002]")
    monkeypatch.setenv("SLURM_JOB_USER", "me")
    return folder / "squeue.asked"


def test_record_names_other_jobs_on_the_nodes(cell_folder, tmp_path, monkeypatch):
    record = encode(a_record(cell_folder.read().cell))
    replace_workers_writing_record(monkeypatch, tmp_path, record)
    asked = put_squeue_on_path(
        tmp_path, monkeypatch, "printf '105|me\\n106|me\\n107|alice\\n'"
    )
    assert attempt_cell(cell_folder).outcome is Outcome.OK
    neighbours = cell_folder.read_record().attempt.neighbours
    assert neighbours == Neighbours(jobs=2, same_user=1, users=("alice", "me"))
    assert asked.read_text().count("-w gr[001-002]") == 2


@pytest.mark.parametrize(
    ("code", "outcome", "words"),
    [
        (
            "pass",
            Outcome.MISSING,
            "the workers ended with exit code 0 but wrote no record",
        ),
        ("raise SystemExit(3)", Outcome.FAILED, "the workers ended with exit code 3"),
        (
            "import os; os.kill(os.getpid(), 9)",
            Outcome.FAILED,
            "torchrun killed by signal 9",
        ),
    ],
)
def test_attempt_without_record_is_judged_by_exit_code(
    cell_folder,
    monkeypatch,
    code,
    outcome,
    words,
):
    replace_workers(monkeypatch, code)
    end = attempt_cell(cell_folder)
    assert end.outcome is outcome
    assert words in (end.reason or "")
    assert cell_folder.read_record() is None


ECHOES = (
    "[enforce] Connection closed by peer [127.0.0.1]:1",
    "DistBackendError: NCCL error",
)


@pytest.mark.parametrize("echo", ECHOES)
def test_rank_with_secondary_error_is_not_blamed(cell_folder, monkeypatch, echo):
    """A node's clock may be ahead: the echo of an error can seem to come before the error."""
    replace_workers_raising(
        monkeypatch, rank_error(0, 1, echo), rank_error(1, 2, "ValueError: mine")
    )
    assert attempt_cell(cell_folder).reason == "rank 1: ValueError: mine"


@pytest.mark.parametrize(
    ("reason", "outcome", "expected"),
    [
        ("ValueError: mine", Outcome.FAILED, "rank 1: ValueError: mine"),
        (
            "RuntimeError: DataLoader worker (pid 7) is killed by signal: Terminated.",
            Outcome.CANCELLED,
            "stopped by SIGTERM, as by Ctrl-C or scancel",
        ),
    ],
)
def test_node_stopped_after_failure_elsewhere_gives_reason(
    cell_folder, reason, outcome, expected
):
    """A node that SLURM stops because another one failed reports that reason."""
    paths = cell_folder.attempt("101_0.r0")
    error = RankError(rank=1, oom=False, reason=reason, traceback="", time_ns=1)
    write_whole(paths.errors / "rank1.json", encode(error))
    for code in (1, -15, -9):
        end = judge(
            Attempt(id=paths.id, job="101_0"), paths, code, stopped=True, torchrun=True
        )
        assert (end.outcome, end.reason) == (outcome, expected)


TORCHRUN = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : gr001
  rank      : 2 (local_rank: 2)
  exitcode  : -9 (pid: 4711)
  error_file: <N/A>
"""


def test_signal_of_killed_rank_is_read_from_torchrun_report(cell_folder, monkeypatch):
    replace_workers(monkeypatch, f"print({TORCHRUN!r}); raise SystemExit(1)")
    end = attempt_cell(cell_folder)
    assert (end.outcome, end.rank) == (Outcome.FAILED, 2)
    assert end.reason == "rank 2 killed by signal 9 (out of memory?)"


def replace_workers_raising(monkeypatch, *errors, report=""):
    """Workers that leave their errors, under a torchrun that reports what it saw."""
    files = {f"rank{error.rank}.json": encode(error).decode() for error in errors}
    replace_workers(
        monkeypatch,
        "import sys, pathlib; root, attempt = sys.argv[1:]\n"
        "place = pathlib.Path(root, 'attempts', attempt, 'errors')\n"
        f"for name, text in {files!r}.items(): (place / name).write_text(text)\n"
        f"print({report!r})\n"
        "raise SystemExit(1)",
    )


def rank_error(rank, time_ns, reason, oom=False):
    return RankError(
        rank=rank,
        oom=oom,
        reason=reason,
        traceback=f"traceback of {rank}",
        time_ns=time_ns,
    )


def test_first_failing_rank_gives_the_reason(cell_folder, monkeypatch):
    replace_workers_raising(
        monkeypatch,
        rank_error(0, 20, "connection closed"),
        rank_error(3, 10, "ValueError: no"),
    )
    end = attempt_cell(cell_folder)
    assert (end.outcome, end.rank) == (Outcome.FAILED, 3)
    assert (end.reason, end.traceback) == ("rank 3: ValueError: no", "traceback of 3")
    assert cell_folder.read_record() is None


def test_killed_rank_outranks_errors_it_caused(cell_folder, monkeypatch):
    replace_workers_raising(
        monkeypatch, rank_error(0, 10, "connection closed by peer"), report=TORCHRUN
    )
    assert (
        attempt_cell(cell_folder).reason == "rank 2 killed by signal 9 (out of memory?)"
    )


def test_rank_ended_by_torchrun_or_nccl_is_not_blamed(cell_folder, monkeypatch):
    report = TORCHRUN.replace("-9", "-6")
    replace_workers_raising(
        monkeypatch, rank_error(3, 10, "ValueError: no"), report=report
    )
    assert attempt_cell(cell_folder).reason == "rank 3: ValueError: no"


def test_oom_on_any_rank_writes_oom_record(cell_folder, monkeypatch):
    replace_workers_raising(
        monkeypatch,
        rank_error(0, 10, "peer is gone"),
        rank_error(1, 20, "out of memory", oom=True),
    )
    end = attempt_cell(cell_folder)
    assert (end.outcome, end.rank) == (Outcome.OOM, 1)
    left = cell_folder.read_record()
    assert left is not None
    assert (left.outcome, left.reason, left.ranks) == (
        Outcome.OOM,
        "rank 1: out of memory",
        (),
    )


def test_fault_of_the_hardware_is_the_nodes(cell_folder, monkeypatch):
    echo = rank_error(0, 10, "DistBackendError: NCCL error")
    fault = msgspec.structs.replace(
        rank_error(
            2, 20, "RuntimeError: CUDA error: uncorrectable ECC error encountered"
        ),
        node_fault=True,
        host="gr002",
    )
    replace_workers_raising(
        monkeypatch, echo, fault, report=TORCHRUN.replace("-9", "-6")
    )
    end = attempt_cell(cell_folder)
    assert (end.outcome, end.node, end.rank) == (Outcome.NODE_FAIL, "gr002", 2)
    assert (
        end.reason
        == "rank 2: RuntimeError: CUDA error: uncorrectable ECC error encountered"
    )
    assert cell_folder.read_record() is None


def test_failure_after_training_keeps_measured_record(
    cell_folder, tmp_path, monkeypatch
):
    text = encode(a_record(a_cell()))
    replace_workers_writing_record(monkeypatch, tmp_path, text, "raise SystemExit(3)")
    end = attempt_cell(cell_folder)
    reason = "the workers ended with exit code 3"
    assert (end.outcome, end.reason) == (Outcome.OK, reason)
    record = cell_folder.read_record()
    assert record.attempt.incomplete == reason
    assert record.ranks == a_record(a_cell()).ranks


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.TIMEOUT, Outcome.OK),
        (Outcome.OOM, Outcome.OK),
        (Outcome.CANCELLED, Outcome.CANCELLED),
        (Outcome.NODE_FAIL, Outcome.NODE_FAIL),
    ],
)
def test_record_written_before_the_end_counts_unless_stopped(
    cell_folder, outcome, expected
):
    paths = cell_folder.attempt("101_0.r0")
    write_whole(paths.record, encode(a_record(a_cell())))
    end = AttemptEnd(
        attempt=Attempt(id=paths.id, job="101_0"), outcome=outcome, reason="why"
    )
    assert keep_measured(end, paths).outcome is expected
    kept = expected is Outcome.OK
    assert decode(paths.record.read_bytes(), "").attempt.incomplete == (
        "why" if kept else None
    )


WATCHDOG = """\
[rank{0}]:[E1122 17:00:00.1 ProcessGroupNCCL.cpp:683] [Rank {0}] \
Watchdog caught collective operation \
timeout: WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, NumelIn=2359296, NumelOut=2359296, \
Timeout(ms)=180000) ran for 180032 milliseconds before timing out.
"""


def test_timed_out_collective_is_read_from_the_log(cell_folder, monkeypatch):
    lines = WATCHDOG.format(3, 41) + WATCHDOG.format(0, 41) + WATCHDOG.format(1, 40)
    report = lines + "  frame #9\n" * 9_000 + TORCHRUN.replace("-9", "-6")
    replace_workers(monkeypatch, f"print({report!r}); raise SystemExit(1)")
    end = attempt_cell(cell_folder)
    expected = "a collective timed out: ranks 0, 3 waited 180 s in ALLREDUCE of 2,359,296 elements"
    assert (end.outcome, end.reason) == (Outcome.FAILED, expected)


def test_truncated_worker_record_is_invalid_and_unpublished(
    cell_folder, tmp_path, monkeypatch
):
    replace_workers_writing_record(
        monkeypatch, tmp_path, encode(a_record(a_cell()))[:300]
    )
    end = attempt_cell(cell_folder)
    assert end.outcome is Outcome.INVALID
    assert "is not a whole record" in (end.reason or "")
    assert not cell_folder.record_json.exists()


def test_other_package_version_in_job_is_refused(working_folder, monkeypatch):
    folder = planned_cell(working_folder, a_cell(), hpml_jobs="0.0.9")
    replace_workers(monkeypatch, "raise SystemExit('must not start')")
    end = attempt_cell(folder)
    assert end.outcome is Outcome.FAILED
    assert end.reason is not None
    assert (
        f"submitted by hpml_jobs 0.0.9, this job's Python ({sys.executable})"
        in end.reason
    )
    assert __version__ in end.reason
    assert not folder.record_json.exists()


@pytest.mark.parametrize("part", ["", "..", "cell.json", "another's"])
def test_cell_that_others_could_change_is_not_run(cell_folder, monkeypatch, part):
    """cell.json says where code is imported from."""
    replace_workers(monkeypatch, "raise SystemExit('must not start')")
    path = (
        cell_folder.root.parent
        if part == "another's"
        else (cell_folder.root / part).resolve()
    )
    if part == "another's":
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    else:
        path.chmod(0o775)
    end = attempt_cell(cell_folder)
    assert end.outcome is Outcome.FAILED
    assert f"{path}: other users can write there" in end.reason
    assert f"chmod go-w {path} if it is yours" in end.reason


# ---- whose record counts ----


def test_valid_record_is_kept(cell_folder, monkeypatch):
    write_record(cell_folder, a_record(a_cell(), attempt="99.r0"))
    old = cell_folder.record_json.read_bytes()
    replace_workers(monkeypatch, "raise SystemExit('must not start')")
    end = attempt_cell(cell_folder)
    assert (end.outcome, end.attempt.id) == (Outcome.OK, "99.r0")
    assert cell_folder.record_json.read_bytes() == old
    assert [path.name for path in cell_folder.attempts.iterdir()] == ["99.r0"]


def test_invalid_record_is_replaced(cell_folder, tmp_path, monkeypatch):
    write_whole(cell_folder.record_json, b'{"schema": 1, "cel')
    replace_workers_writing_record(monkeypatch, tmp_path, encode(a_record(a_cell())))
    assert attempt_cell(cell_folder).outcome is Outcome.OK
    assert cell_folder.read_record() == a_record(a_cell())


def test_rerun_replaces_only_the_superseded_record(
    working_folder, tmp_path, monkeypatch
):
    folder = planned_cell(working_folder, a_cell(), supersedes="99.r0")
    write_record(folder, a_record(a_cell(), attempt="99.r0"))
    replace_workers_writing_record(
        monkeypatch, tmp_path, encode(a_record(a_cell(), epoch_s=5.0))
    )
    assert attempt_cell(folder).outcome is Outcome.OK
    new = folder.read_record()
    assert new is not None
    assert new.attempt.id == "101_0.r0"
    # requeued after that, it has its answer
    replace_workers(monkeypatch, "raise SystemExit('must not start')")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert attempt_cell(folder).attempt.id == "101_0.r0"


def test_record_published_meanwhile_is_not_overwritten(
    cell_folder, tmp_path, monkeypatch
):
    cell_folder.attempt("99.r0").root.mkdir(parents=True)
    other = encode(a_record(a_cell(), attempt="99.r0"))
    (tmp_path / "other").write_bytes(other)
    then = f"shutil.copy({str(tmp_path / 'other')!r}, f'{{root}}/record.json')"
    replace_workers_writing_record(
        monkeypatch, tmp_path, encode(a_record(a_cell())), then
    )
    attempt_cell(cell_folder)
    assert cell_folder.record_json.read_bytes() == other


def test_superseded_attempt_does_not_publish(cell_folder, tmp_path, monkeypatch):
    then = "pathlib.Path(root, 'attempts', 'current').write_text('202.r0')"
    replace_workers_writing_record(
        monkeypatch, tmp_path, encode(a_record(a_cell())), then
    )
    end = attempt_cell(cell_folder)
    assert end.outcome is Outcome.CANCELLED
    assert end.reason == "superseded by attempt 202.r0; its record is not used"
    assert not cell_folder.record_json.exists()


def test_only_first_node_writes_attempt_end(cell_folder, monkeypatch):
    monkeypatch.setenv("SLURM_NODEID", "1")
    replace_workers(monkeypatch, "raise SystemExit(1)")
    assert attempt_cell(cell_folder).outcome is Outcome.FAILED
    attempt = cell_folder.attempt("101_0.r0")
    assert cell_folder.latest_attempt() is None
    assert not attempt.end.exists()
    assert (attempt.root / "log-node1.txt").exists()


# ---- signals ----

STOPPED = """\
import sys, pathlib
from hpml_jobs.job import run as job, workers
workers.worker_command = lambda cell, root, attempt, here: [
    sys.executable, "-c", "import time, pathlib; pathlib.Path('started').touch(); time.sleep(3600)"]
sys.argv = ["job", sys.argv[1]]
cell = pathlib.Path(sys.argv[1])
job.run_task(str(cell.parent), (cell.name,))
"""


def test_wrapper_ignores_usr2_and_sigterm_ends_workers_first(
    cell_folder, working_folder
):
    root = Path(__file__).parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(cell_folder.root)],
        env=os.environ | {"PYTHONPATH": str(root)},
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until(
            (working_folder / "started").exists,
            "the workers have started",
            has_ended=lambda: process.poll() is not None,
        )
        process.send_signal(signal.SIGUSR2)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)
        process.terminate()
        assert process.wait(PATIENCE_S) == 1
    finally:
        process.kill()
        process.wait()
    end = cell_folder.attempt("101_0.r0").read_end()
    assert end is not None
    assert (end.outcome, end.reason) == (
        Outcome.CANCELLED,
        "stopped by SIGTERM, as by Ctrl-C or scancel",
    )
    assert (
        msgspec.json.decode((cell_folder.attempt("101_0.r0").about).read_bytes())["job"]
        == "101_0"
    )


@pytest.mark.parametrize("job", ["local-17-1700000000", "101_0"])
def test_time_limit_of_local_job_stops_its_workers(cell_folder, monkeypatch, job):
    alarm = partial(signal.setitimer, signal.ITIMER_REAL)
    monkeypatch.setattr(signal, "alarm", lambda seconds: alarm(seconds / 600))
    is_local = job.startswith("local")
    seconds = 3600 if is_local else 1
    replace_workers(monkeypatch, f"import time; time.sleep({seconds})")
    shape = Shape(
        nodes=1,
        gpus_per_node=1,
        gpu_type=None,
        cpus_per_node=1,
        mem_gb_per_node=None,
        minutes=1,
    )
    file = msgspec.structs.replace(cell_folder.read(), shape=shape)
    attempt = cell_folder.attempt(f"{job}.r0")
    attempt.errors.mkdir(parents=True)
    callbacks = Callbacks(lambda: None, lambda: None)
    ended = run_workers(file, cell_folder, attempt, Job(job, 0, 0), callbacks)
    assert ended == ((-signal.SIGTERM, True) if is_local else (0, False))


DETACHED = """
import os, signal, subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
pids = [subprocess.Popen(sleep).pid]
pids += [subprocess.Popen(sleep, start_new_session=True).pid]
pids += [subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True).pid]
reading, writing = os.pipe()
if not os.fork():
    os.setsid()
    if not os.fork():
        os.write(writing, str(os.getpid()).encode())
        time.sleep(600)
    os._exit(0)
pids += [int(os.read(reading, 99))]
open(sys.argv[1], "w").write(" ".join(map(str, pids)))
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize(("seconds", "alarm"), [("0.3", False), ("600", True)])
def test_every_process_of_a_cell_ends_with_it(
    cell_folder, tmp_path, monkeypatch, seconds, alarm
):
    script = tmp_path / "detached.py"
    script.write_text(DETACHED)
    words = [sys.executable, str(script), str(tmp_path / "pids"), seconds]
    monkeypatch.setattr(job_workers, "worker_command", lambda *_: words)
    file = cell_folder.read()
    attempt = cell_folder.attempt("101_0.r0")
    attempt.errors.mkdir(parents=True)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    def end_soon():
        while alarm and not (tmp_path / "pids").exists():
            time.sleep(0.01)
        if alarm:
            signal.setitimer(signal.ITIMER_REAL, 0.2)

    try:
        run_workers(file, cell_folder, attempt, ONE, Callbacks(end_soon, lambda: None))
        pids = (tmp_path / "pids").read_text().split()
        assert len(pids) == 4
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_attempt_without_exit_report_is_ended_by_the_next(cell_folder, monkeypatch):
    silent = Attempt(id="101_0.r0", job="101_0", started="2026-11-21T10:00:00+00:00")
    write_whole(cell_folder.attempt(silent.id).about, encode(silent))
    write_whole(cell_folder.current, silent.id.encode())
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    replace_workers(monkeypatch, "raise SystemExit(1)")
    attempt_cell(cell_folder)
    end = cell_folder.attempt(silent.id).read_end()
    assert end is not None
    assert (end.outcome, end.attempt.started) == (Outcome.UNKNOWN, silent.started)
    assert end.reason == "ended without an exit report, before attempt 101_0.r1"
    last = cell_folder.last_end()
    assert last is not None
    assert last.outcome is Outcome.FAILED


def test_cell_cancelled_after_its_minutes_is_timeout():
    shape = Shape(
        nodes=1,
        gpus_per_node=1,
        gpu_type=None,
        cpus_per_node=1,
        mem_gb_per_node=None,
        minutes=2,
    )
    file = CellFile(cell=a_cell(), data_root="", code_root="", shape=shape)
    stopped = AttemptEnd(attempt=Attempt(id="7.r0", job="7"), outcome=Outcome.CANCELLED)
    assert apply_time_limit(stopped, file, 119.0) is stopped
    over = apply_time_limit(stopped, file, 121.0)
    assert (over.outcome, over.reason) == (
        Outcome.TIMEOUT,
        "not finished within its 2 minutes (minutes=)",
    )


TORCHRUN_REPORT = """train.py: error: unrecognized arguments: --local-rank=0
W1126 17:05:13.700000 19 torch/distributed/elastic/multiprocessing/api.py:9] Sending process 8 \
closing signal SIGTERM
E1126 17:05:13.801000 19 torch/distributed/elastic/multiprocessing/api.py:10] failed (exitcode: 2) \
local_rank: 0 (pid: 2018) of binary: python
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
Root Cause (first observed failure):
  exitcode  : 2 (pid: 2018)
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


HYDRA = (
    "\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
)
LOGS = {
    "argparse": (
        "usage: t.py [-h]\nt.py: error: no such: --x\n",
        "t.py: error: no such: --x",
    ),
    "report of torchrun": (
        TORCHRUN_REPORT,
        "train.py: error: unrecognized arguments: --local-rank=0",
    ),
    "exception in hydra": (
        f"Error executing job with overrides: []\nTraceback\n  File t\nValueError: x\n{HYDRA}",
        "ValueError: x",
    ),
}


@pytest.mark.parametrize(("log", "words"), LOGS.values(), ids=LOGS)
def test_reason_is_what_the_program_itself_said_last(tmp_path, log, words):
    (tmp_path / "log.txt").write_text(log)
    assert AttemptFolder(tmp_path).last_words() == words
