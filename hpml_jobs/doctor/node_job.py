"""The diagnostic job: run node_check on a node as a cell would run, and report."""

import math
import os
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.core.answers import Finding, NodeAnswer, ok, problem, warning
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.cluster import sbatch_options
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import VERSION, last_error
from hpml_jobs.plan.cells import Plan, PlannedCell
from hpml_jobs.slurm.commands import ask_slurm
from hpml_jobs.slurm.jobs import JobState
from hpml_jobs.slurm.pending import why_pending
from hpml_jobs.status.query import query_slurm
from hpml_jobs.study.files import (
    LOG_BYTES,
    encode,
    read_json,
    tail,
    write_whole,
    writing,
)
from hpml_jobs.study.study import Study
from hpml_jobs.submit.scripts import STEP, header, python, setup
from hpml_jobs.submit.send import NoJobError, check_folder, sbatch

STUDY = "doctor"
"""Name of the folder in outputs with doctor's files and its validation study."""

MINUTES = 5
POLL_S = 0.5
QUERY_INTERVAL_S = 3.0
FILE_LAG_S = 30.0
"""How long to wait for the answer of a finished job: a shared file system may show it late."""

CLOCK_TOLERANCE_S = 5.0

_UNSEEN = (f"{os.EX_NOINPUT}:0", "0:53")
"""Exit codes of a job whose node lacks the request, or the folder of SLURM's own log."""

_NOT_INSTALLED = "No module named"
"""Python's message if hpml_jobs is not installed on the node; then there is no answer."""

_SLURM_PREFIXES = ("srun:", "slurmstepd:")
"""Prefixes of SLURM's own lines in a job's error log."""


class NodeFiles(NamedTuple):
    """The files that are exchanged with the node: the cell to check for, and the answer."""

    request: Path
    answer: Path

    def read(self) -> NodeAnswer | None:
        """Return the answer; None until it is complete."""
        try:
            return read_json(self.answer, NodeAnswer)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise HpmlError(f"the node's answer cannot be read: {error}") from error

    def remove(self) -> None:
        """Remove both files."""
        for path in self:
            path.unlink(missing_ok=True)


def check_node(
    plan: Plan, patience_s: float, notify: Callable[[str], None]
) -> list[Finding]:
    """Submit the job, wait at most `patience_s` for it, and return its findings on the first cell.

    `notify` receives the job's state meanwhile. A job that does not finish in time is cancelled.
    """
    study, cell = Study(plan.study.root.parent / STUDY), plan.cells[0]
    try:
        exchange = _write_request(study, cell)
        check_folder(study)
        job = sbatch(study, _script(plan, study, cell, exchange), exchange.request.stem)
    except NoJobError as error:
        words = f"{error.what} the diagnostic job: {error}{error.remedy}"
        return [problem("job", words)]
    except HpmlError as error:
        return [problem("job", str(error))]
    finished = False
    try:
        answer, absent_s, last = _wait(study, job, exchange, patience_s, notify)
        finished = answer is not None or not last.outcome.active
    except HpmlError as error:
        return [problem("job", str(error))]
    finally:
        if not finished:
            ask_slurm("scancel", job)
    if answer is None:
        return [_no_answer(study, last, patience_s)]
    exchange.remove()
    return [*answer.findings, _check_clock(answer.written_s, absent_s, time.time())]


def check_this_machine(plan: Plan) -> list[Finding]:
    """Run the same checks on this machine, in a process of their own."""
    study = Study(plan.study.root.parent / STUDY)
    try:
        exchange = _write_request(study, plan.cells[0])
    except HpmlError as error:
        return [problem("process", str(error))]
    command = [
        sys.executable,
        "-m",
        "hpml_jobs.worker.node_check",
        *map(str, exchange),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60 * MINUTES, check=False
        )
        answer = exchange.read()
    except (subprocess.TimeoutExpired, HpmlError) as error:
        return [problem("process", str(error))]
    finally:
        exchange.remove()
    if answer is None:
        reason = last_error(done.stderr) or f"exit code {done.returncode}"
        return [problem("process", f"the checks ended without an answer: {reason}")]
    return list(answer.findings)


def _write_request(study: Study, cell: PlannedCell) -> NodeFiles:
    with writing(study.slurm):
        study.slurm.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = uuid.uuid4().hex[:12]
        exchange = NodeFiles(
            study.slurm / f"{name}_asked.json", study.slurm / f"{name}_answer.json"
        )
        request = msgspec.structs.replace(cell.file, shape=cell.shape)
        write_whole(exchange.request, encode(request))
    return exchange


def _script(plan: Plan, study: Study, cell: PlannedCell, exchange: NodeFiles) -> str:
    """Return a job script for one node with the resources of the cell, for a few minutes."""
    minutes = min(MINUTES, cell.shape.minutes)
    shape = msgspec.structs.replace(cell.shape, nodes=1, minutes=minutes)
    logs = study.slurm / f"%j_{STUDY}_log"
    options = sbatch_options(shape, plan.cluster) | {
        "job-name": study.job_name,
        "output": f"{logs}.out",
        "error": f"{logs}.err",
        "dependency": None,  # it is too short to disturb a measurement
        "requeue": None,
    }
    step = f"{STEP} --ntasks=1 --cpus-per-task={shape.cpus_per_node}"
    files = shlex.join(map(str, exchange))
    lines = [
        *header(options),
        "",
        f"[ -e {shlex.quote(str(exchange.request))} ] || exit {os.EX_NOINPUT}",
        *setup(shape, plan.cluster),
        f"{step} {python(plan.cluster)} -u -m hpml_jobs.worker.node_check {files}",
    ]
    return "\n".join(lines) + "\n"


def _wait(
    study: Study,
    job: str,
    exchange: NodeFiles,
    patience_s: float,
    notify: Callable[[str], None],
) -> tuple[NodeAnswer | None, float, JobState]:
    """Wait until the answer is there, the job has ended without one, or `patience_s` is over.

    Return also the last time at which it was absent (Unix time), and the job's last state.
    """
    start = next_query = time.monotonic()
    over_since = math.inf
    absent_s, last = time.time(), JobState(job=job, state="PENDING")
    while True:
        read_s = time.time()
        answer = exchange.read()
        now = time.monotonic()
        given_up = now > min(over_since + FILE_LAG_S, start + patience_s)
        if answer is not None or given_up:
            return answer, absent_s, last
        absent_s = read_s
        if next_query <= now < over_since:
            next_query = now + QUERY_INTERVAL_S
            slurm = query_slurm(study, [job]).of(job)
            last = slurm.state or last
            is_unanswered = not (slurm.state or slurm.gone)
            text = "squeue does not answer" if is_unanswered else _words(last)
            notify(f"job {job}: {text}")
            if slurm.gone or last.state == "COMPLETED":
                over_since = now  # its answer may not be visible yet
            elif last.over:
                return exchange.read(), absent_s, last
        time.sleep(POLL_S)


def _words(state: JobState) -> str:
    """Return a job's state with the reason why it is pending or the node that it runs on."""
    if state.outcome is Outcome.PENDING and state.reason:
        return f"{state.state}, {why_pending(state.reason)}"
    return f"{state.state} on {state.node}" if state.node else state.state


def _no_answer(study: Study, last: JobState, patience_s: float) -> Finding:
    """Report why the job gave no answer."""
    if last.outcome.active:
        return _still_active(last, patience_s)
    node = last.node or "the node"
    if last.exit_code in _UNSEEN:
        return _not_shared(f"{node} does not see {study.slurm}")
    if last.state == "COMPLETED":
        return _not_shared(
            f"{node} wrote into {study.slurm}, and this machine does not see it"
        )
    output = _last_line(study, last.job) or "it printed nothing"
    remedy = f"read its logs in {study.slurm}"
    if _NOT_INSTALLED in output:
        remedy = f"install hpml-jobs {VERSION} into the jobs' Python (cluster.python=)"
    return problem(
        "job",
        f"job {last.job} ended without an answer, {_words(last)}: {output}",
        remedy,
    )


def _still_active(last: JobState, patience_s: float) -> Finding:
    observed = (
        f"job {last.job} cancelled: still {_words(last)} after {patience_s / 60:g} min"
    )
    level = warning if last.outcome is Outcome.PENDING else problem
    return level("job", observed, "wait longer with --patience MINUTES")


def _not_shared(observed: str) -> Finding:
    return problem(
        "shared folder",
        observed,
        "name a folder that both share (outputs=), or submit from an interactive job",
    )


def _last_line(study: Study, job: str) -> str:
    """Return the last line of the job's error log that is not SLURM's own."""
    text = tail(study.slurm / f"{job}_{STUDY}_log.err", LOG_BYTES)
    lines = [*filter(None, map(str.strip, text.splitlines()))]
    of_program = [line for line in lines if not line.startswith(_SLURM_PREFIXES)]
    last_lines = of_program or lines
    return last_lines[-1] if last_lines else ""


def _check_clock(written_s: float, absent_s: float, read_s: float) -> Finding:
    """Compare the node's clock with ours: the answer was absent at `absent_s` and read at `read_s`.

    A shared file system may show the answer late, so a clock that is behind is reported only
    beyond that lag. All times are Unix times, seconds.
    """
    ahead_s, behind_s = written_s - read_s, absent_s - written_s
    if ahead_s > CLOCK_TOLERANCE_S or behind_s > CLOCK_TOLERANCE_S + FILE_LAG_S:
        where = "ahead of" if ahead_s > 0 else "behind"
        difference = f"{max(ahead_s, behind_s):.0f} s {where}"
        return warning(
            "clock",
            f"the node's clock is {difference} this machine's",
            "report it to the cluster's support; start times are wrong, epoch times are right",
        )
    within_s = max(1.0, read_s - absent_s)
    return ok(
        "clock",
        f"the clocks of the node and this machine agree within {within_s:.0f} s",
    )
