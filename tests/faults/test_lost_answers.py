"""Every end of sbatch on the real SLURM, the same command given again: one job of each cell."""

import re
import shutil
from typing import NamedTuple

import pytest

from tests.conftest import Program
from tests.faults.fault_study import write_fake_sbatch
from tests.patience import wait_until

pytestmark = pytest.mark.journey

SENT = '{sbatch} "$@" > /dev/null 2>&1'
TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"


class End(NamedTuple):
    """What an sbatch does; how the command ends, and what it says; the cells and jobs then."""

    lines: str
    code: int
    words: str
    outcome: str = "pending"
    jobs: int = 1


ENDS = {
    "killed": End(f"{SENT}; kill -9 $$", 0, "(SLURM "),
    "timed-out": End(f'{SENT}; echo "{TIMED_OUT}" >&2; exit 1', 0, "(SLURM "),
    "banner": End(f'{SENT}; echo "Invalid accounts end today"; exit 1', 0, "(SLURM "),
    "silent": End(f"{SENT}; exit 0", 0, "(SLURM "),
    "interrupted": End(
        f"{SENT}; while kill -INT $PPID; do sleep 0.2; done", 130, "interrupted; "
    ),
    "unreachable": End(
        'SLURM_CONF={dead} exec {sbatch} "$@"',
        1,
        "sbatch gave no job id (exit code 1: error: Batch job submission failed: Unable to contact "
        "slurm controller (connect failure)), and SLURM lists no such job",
        "unknown",
        0,
    ),
    "refused": End(
        'exec {sbatch} --reservation=none "$@"',
        1,
        "error: Batch job submission failed: Requested reservation is invalid",
        "missing",
        0,
    ),
}
ROWS = [
    *(("array", end) for end in ENDS),
    ("pack", "killed"),
    *(("follow-up", end) for end in ("killed", "unreachable", "refused")),
]
HELD = ("-m", "gpus=1", "batch=16,32", "minutes=4", "+cluster.sbatch.hold=true")
WORDS = {
    "array": HELD,
    "pack": (*HELD, "pack=true", "cluster.isolate=serial"),
    "follow-up": (*HELD, "collect_after=true"),
}


@pytest.fixture(scope="module")
def program_with(login, rig, tmp_path_factory):
    """Return a function from the lines of an sbatch to the program that calls it."""
    real = shutil.which("sbatch", path=rig.env["PATH"])
    dead = tmp_path_factory.mktemp("dead") / "slurm.conf"
    configuration = (rig.folder / "slurm.conf").read_text()
    dead.write_text(re.sub(r"(SlurmctldPort)=\d+", r"\1=1", configuration))

    def program(lines, only="#SBATCH"):
        folder = tmp_path_factory.mktemp("end") / "bin"
        other = f'grep -q "{only}" "$1" || exec {real} "$@"\n'
        write_fake_sbatch(folder, other + lines.format(sbatch=real, dead=dead))
        path = f"{folder}:{rig.env['PATH']}"
        return Program(login.folder, login.environment | {"PATH": path})

    return program


@pytest.fixture(scope="module", autouse=True)
def forgotten(make_study, program_with):
    """A study whose program was killed inside sbatch, and whose job ends without an attempt."""
    words = ("-m", "gpus=1", "batch=16,32", 'cluster.setup=["false"]')
    case = make_study("forgotten", *words)
    program_with(f"{SENT}; kill -9 $PPID")(*case.words)
    return case


def let_time_pass(study):
    """Let the last sbatch have ended long ago."""
    *before, last = study.manifest.read_text().splitlines(keepends=True)
    last = re.sub(r'"time":"\d{4}', '"time":"2025', last)
    study.manifest.write_text("".join([*before, last]))


@pytest.mark.parametrize(("kind", "name"), ROWS)
def test_command_given_again_sends_each_cell_once(
    make_study, program_with, rig, kind, name
):
    case, end = make_study(f"{kind}-{name}", *WORDS[kind]), ENDS[name]
    is_followup = kind == "follow-up"
    program = program_with(end.lines, "closing_log" if is_followup else "#SBATCH")
    names = (case.study.job_name, case.study.closing_name)

    def jobs():
        table = rig.run("squeue", "-h", "-n", names[is_followup], "-o", "%F").stdout
        return len(set(table.split()))

    first = program(*case.words)
    printed = first.stdout + first.stderr
    assert (first.returncode, end.words in printed) == (end.code, True), printed
    program(*case.words)
    assert jobs() == end.jobs
    outcomes = {state["outcome"] for state in case.states().values()}
    assert outcomes == {"pending" if is_followup else end.outcome}
    if not end.jobs:
        let_time_pass(case.study)
    case.login.ok(*case.words)
    assert jobs() == 1
    assert {state["outcome"] for state in case.states().values()} == {"pending"}
    case.login.ok("cancel", case.name)
    assert jobs() == 0


def test_job_that_only_accounting_has_is_found(forgotten, rig):
    queue = ("squeue", "-h", "-t", "all", "-n", forgotten.study.job_name)
    wait_until(lambda: not rig.run(*queue).stdout, "the controller forgets the job")
    let_time_pass(forgotten.study)
    states = forgotten.states().values()
    assert [state["outcome"] for state in states] == ["failed", "failed"]
    assert len({state["job"] for state in states}) == 2
