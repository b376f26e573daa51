"""A short job that looks around on a node as a cell would, and what it tells."""

import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs import __version__
from hpml_jobs.core.cluster import sbatch_options
from hpml_jobs.core.findings import Finding, NodeAnswer, ok, problem, warning
from hpml_jobs.errors import HpmlError
from hpml_jobs.plan.plan import Plan, PlannedCell
from hpml_jobs.slurm.commands import ask_slurm
from hpml_jobs.slurm.jobs import JobState
from hpml_jobs.slurm.pending import why_pending
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.status.query import ask
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.study import Study
from hpml_jobs.submit.arrays import python, setup
from hpml_jobs.submit.sbatch import RefusedError, check_folder, header, sbatch

STUDY = "doctor"
"""The folder in outputs that the doctor's own files, and its study, are in."""

MINUTES = 5
POLL_S = 0.5
ASK_EVERY_S = 3.0
FILE_LAG_S = 30.0
"""How long an ended job's answer is waited for: a shared file system may show it late."""

CLOCKS_MAY_DIFFER_S = 5.0

_NOT_INSTALLED = "No module named"
"""Python's own words; the doctor's program has not begun then, and can answer nothing."""

_BY_SLURM = ("srun:", "slurmstepd:")
"""How SLURM begins its lines in a job's error log."""


class Question(NamedTuple):
    """The files between here and the node: the cell it looks with the eyes of, and its answer."""

    asked: Path
    answer: Path

    def read(self) -> NodeAnswer | None:
        """The answer, once it is there whole."""
        try:
            return msgspec.json.decode(self.answer.read_bytes(), type=NodeAnswer)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as fault:
            raise HpmlError(f"the node's answer cannot be read: {fault}") from fault

    def forget(self) -> None:
        """Take both files away."""
        for path in self:
            path.unlink(missing_ok=True)


def look(
    plan: Plan, one: PlannedCell, patience_s: float, say: Callable[[str], None]
) -> list[Finding]:
    """Send the job, wait for it no longer than `patience_s`, and tell what it found.

    `say` hears what squeue says meanwhile. A job that is no longer waited for is cancelled.
    """
    study = Study(plan.study.root.parent / STUDY)
    try:
        question = _ask(study, one)
        check_folder(study)
        job = sbatch(study, _script(plan, study, one, question))
    except RefusedError as fault:
        return [problem("job", f"sbatch refused it: {fault}", "see request")]
    except HpmlError as fault:
        return [problem("job", str(fault))]
    ended = False
    try:
        answer, absent_s, last = _wait(study, job, question, patience_s, say)
        ended = answer is not None or not last.outcome.active
    except HpmlError as fault:
        return [problem("job", str(fault))]
    finally:
        if not ended:
            ask_slurm("scancel", job)
    if answer is None:
        return [_unanswered(study, last, patience_s)]
    question.forget()
    return [*answer.findings, _clocks(answer.written_s, absent_s, time.time())]


def look_here(plan: Plan, one: PlannedCell) -> list[Finding]:
    """The same questions to this machine, by a process of its own."""
    study = Study(plan.study.root.parent / STUDY)
    try:
        question = _ask(study, one)
    except HpmlError as fault:
        return [problem("process", str(fault))]
    command = [sys.executable, "-m", "hpml_jobs.worker.node_check", *map(str, question)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60 * MINUTES, check=False
        )
        answer = question.read()
    except (subprocess.TimeoutExpired, HpmlError) as fault:
        return [problem("process", str(fault))]
    finally:
        question.forget()
    if answer is None:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return [problem("process", f"it ended without an answer: {said}")]
    return list(answer.findings)


def _ask(study: Study, one: PlannedCell) -> Question:
    try:
        study.slurm.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = uuid.uuid4().hex[:12]
        question = Question(study.slurm / f"{name}_asked.json", study.slurm / f"{name}_answer.json")
        write_whole(question.asked, encode(msgspec.structs.replace(one.file, shape=one.shape)))
    except OSError as fault:
        raise HpmlError(f"{study.slurm} cannot be written: {fault.strerror}") from fault
    return question


def _script(plan: Plan, study: Study, one: PlannedCell, question: Question) -> str:
    """One node, as the cell would ask for it, for a few minutes."""
    minutes = min(MINUTES, one.shape.minutes)
    shape = msgspec.structs.replace(one.shape, nodes=1, minutes=minutes)
    logs = study.slurm / f"%j_{STUDY}_log"
    options = sbatch_options(shape, plan.cluster) | {
        "job-name": f"hpml-{STUDY}",
        "output": f"{logs}.out",
        "error": f"{logs}.err",
        "dependency": None,  # it disturbs nothing that is measured for long
        "requeue": None,
    }
    step = f"srun --ntasks=1 --cpus-per-task={shape.cpus_per_node} --kill-on-bad-exit=1"
    files = shlex.join(str(path) for path in question)
    lines = [
        *header(options),
        "",
        *setup(shape, plan.cluster),
        f"{step} {python(plan.cluster)} -u -m hpml_jobs.worker.node_check {files}",
    ]
    return "\n".join(lines) + "\n"


class Waited(NamedTuple):
    """What came of waiting: the answer, when it was last seen not to be there, the job's state."""

    answer: NodeAnswer | None
    absent_s: float
    last: JobState


def _wait(
    study: Study, job: str, question: Question, patience_s: float, say: Callable[[str], None]
) -> Waited:
    """Until the answer is there, the job is over without one, or patience has ended."""
    begun = asked = time.monotonic()
    over_since: float | None = None
    absent_s, last = time.time(), JobState(job=job, state="PENDING")
    while True:
        looked_s = time.time()
        answer = question.read()
        now = time.monotonic()
        given_up = over_since is not None and now > over_since + FILE_LAG_S
        if answer is not None or given_up or now > begun + patience_s:
            return Waited(answer, absent_s, last)
        absent_s = looked_s
        if now >= asked and over_since is None:
            asked = now + ASK_EVERY_S
            told = ask(study, [job]).of(job)
            last = told.state or last
            silent = not (told.state or told.gone)
            say(f"job {job}: {'squeue does not answer' if silent else _words(last)}")
            if told.gone or last.state == "COMPLETED":
                over_since = now  # its answer may not be visible yet
            elif last.over:
                return Waited(question.read(), absent_s, last)
        time.sleep(POLL_S)


def _words(state: JobState) -> str:
    """A job's state with why it waits or where it runs."""
    if state.outcome is Outcome.PENDING and state.reason:
        return f"{state.state}, {why_pending(state.reason)}"
    return f"{state.state} on {state.node}" if state.node else state.state


def _unanswered(study: Study, last: JobState, patience_s: float) -> Finding:
    """Why the job told nothing."""
    if last.outcome.active:
        seen = f"job {last.job} still {_words(last)} after {patience_s / 60:g} min, so cancelled"
        remedy = "--patience MINUTES waits longer; squeue --start tells when SLURM would begin"
        waiting = last.outcome is Outcome.PENDING
        return (warning if waiting else problem)("job", seen, remedy)
    said = _last_words(study, last.job)
    remedy = ""
    if _NOT_INSTALLED in said:
        remedy = f"install hpml-jobs {__version__} into the jobs' Python (cluster.python=)"
    seen = f"job {last.job} ended without an answer, {_words(last)}: {said or 'it printed nothing'}"
    return problem("job", seen, remedy or f"its logs are in {study.slurm}")


def _last_words(study: Study, job: str) -> str:
    """The last line of its error log that is not SLURM's report of it."""
    try:
        text = (study.slurm / f"{job}_{STUDY}_log.err").read_text(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith(_BY_SLURM)]
    return (own or lines or [""])[-1]


def _clocks(written_s: float, absent_s: float, seen_s: float) -> Finding:
    """The node's clock beside ours: it wrote between our last look without the answer and now.

    A shared file system may show the answer late, so a clock that is behind is told only beyond
    that lag.
    """
    ahead_s, behind_s = written_s - seen_s, absent_s - written_s
    if ahead_s > CLOCKS_MAY_DIFFER_S or behind_s > CLOCKS_MAY_DIFFER_S + FILE_LAG_S:
        apart = f"{max(ahead_s, behind_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'}"
        remedy = "times of attempts will look odd (epochs are not touched): tell the support"
        return warning("clock", f"the node's clock is {apart} this machine's", remedy)
    within_s = max(1.0, seen_s - absent_s)
    return ok("clock", f"the node's and ours agree, as far as it can be told ({within_s:.0f} s)")
