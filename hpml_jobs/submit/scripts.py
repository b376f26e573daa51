"""The text of every sbatch script: of an array, of a shared allocation, of the follow-up job."""

import functools
import pickle
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from submitit.core.utils import DelayedSubmission

from hpml_jobs.core.cluster import (
    Cluster,
    Isolate,
    Shape,
    followup_options,
    sbatch_options,
)
from hpml_jobs.core.stack_files import STACK_SIGNAL
from hpml_jobs.job.run import run_task
from hpml_jobs.plan.cells import Plan, PlannedCell
from hpml_jobs.slurm.jobs import JOB_WORDS, array_ids
from hpml_jobs.study.study import Study
from hpml_jobs.submit.job_requests import AT_ONCE, JobKind, JobRequest

FOLLOWUP_MINUTES = 15
FOLLOWUP_MEMORY_GB = 4

STEP = "srun --export=ALL --kill-on-bad-exit=1"
"""The beginning of each step: it gets the job's environment, also after sbatch --export=NONE."""

WARNING_S, WARNING_SHARE, LEAST_WARNED_MINUTES = 90, 4, 4
"""Seconds between SLURM's warning and the time limit, at most this part of it; from so many minutes
on. SLURM may warn a minute earlier, and a Python that is still starting dies by the signal.
"""


def script(study: Study, cluster: Cluster, request: JobRequest) -> str:
    """Return the sbatch script of a request."""
    write = _array_script if request.kind is JobKind.ARRAY else _shared_script
    return write(study, cluster, request)


def _array_script(study: Study, cluster: Cluster, request: JobRequest) -> str:
    """Return the sbatch script of an array, one task per cell, which submitit runs.

    One cell is a plain job. The logs are where submitit looks for them.
    """
    folder = shlex.quote(str(study.slurm))
    # In a folder that the group may write, slurm/ and its pickle can be exchanged after submission.
    reason = f"{study.slurm} is not yours, or other users can write there"
    owned = f'find {folder} -maxdepth 0 -uid "$(id -u)" ! -perm /022'
    refuse_others = f'[ -n "$({owned})" ] || {_end_with(reason)}'
    job = '"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"'
    link_pickle = f"ln -sf {request.pickle_name} {folder}/{job}_submitted.pkl || exit 1"
    is_array, tasks = len(request.cells) > 1, len(request.cells)
    at_once = 1 if cluster.isolate is Isolate.SERIAL else min(tasks, AT_ONCE)
    name = "%A_%a" if is_array else "%j"
    options = _options(study, cluster, request, f"{study.slurm}/{name}_0_log")
    options |= {
        "array": f"0-{tasks - 1}%{at_once}" if is_array else None,
        "signal": _signal(request.shape.minutes),
    }
    logs = shlex.quote(f"{study.slurm}/{name}_%t_log")
    cpus = request.shape.cpus_per_node
    step = f"{STEP} --unbuffered --cpus-per-task={cpus} --output={logs}.out --error={logs}.err"
    return _text(
        options,
        refuse_others,
        link_pickle,
        *setup(request.shape, cluster),
        "export SUBMITIT_EXECUTOR=slurm",
        f"{step} {python(cluster)} -u -m submitit.core._submit {folder}",
    )


def _end_with(reason: str) -> str:
    """Return the shell command that ends a job with a reason that `status` shows."""
    return f"{{ echo {shlex.quote(JOB_WORDS + reason)} >&2; exit 1; }}"


def _options(
    study: Study, cluster: Cluster, request: JobRequest, log: str
) -> dict[str, Any]:
    """Return the options of a job that measures cells."""
    options = sbatch_options(request.shape, cluster)
    excluded = [*request.exclude, *filter(None, [options.get("exclude")])]
    return options | {
        "job-name": study.job_name,
        "output": f"{log}.out",
        "error": f"{log}.err",
        "open-mode": "append",
        "exclude": ",".join(map(str, excluded)) or None,
    }


def _signal(minutes: int) -> str | None:
    """Return when SLURM warns a job of its time limit, at which ranks write their stacks.

    >>> _signal(3), _signal(4), _signal(30)
    (None, 'USR2@60', 'USR2@90')
    """
    if minutes < LEAST_WARNED_MINUTES:
        return None
    return f"{STACK_SIGNAL.name[3:]}@{min(WARNING_S, 60 * minutes // WARNING_SHARE)}"


def pickled(study: Study, request: JobRequest) -> bytes:
    """Return what the tasks of an array run: it is the same for the same cells."""
    call = DelayedSubmission(run_task, str(study.cells_folder), request.slugs)
    # SLURM requeues, submitit never
    call.set_timeout(request.shape.minutes, max_num_timeout=0)
    return pickle.dumps(call)


_STEP_OPTIONS = ("nodes", "cpus-per-task", "gres", "mem", "time", "ntasks")

_STEP = """\
cell() {{
  name=$1; shift
  for attempt in 1 2 3 4 5 6; do
    {step} --ntasks-per-node=1 --open-mode=append --job-name="$name" \\
      --output={logs}/%j_"$name"_log.out --error={logs}/%j_"$name"_log.err "$@" \\
      {python} -u -m hpml_jobs.job {cells}/"$name"
    code=$?
    # Without a log the step was not created: the memory of the step before was not free yet.
    [ $code -eq 0 ] || [ -e {logs}/"$SLURM_JOB_ID"_"$name"_log.out ] && break
    sleep 10
  done
  [ $code -eq 0 ] || failed=1  # a failed cell does not stop the others
}}"""


def _shared_script(study: Study, cluster: Cluster, request: JobRequest) -> str:
    """Return the sbatch script of a pack: each cell is a step of its own.

    SLURM isolates the steps: each has its cell's share of the allocation and its time limit, and
    its processes are gone before the next one starts.
    """
    log = f"{study.slurm}/%j_{request.kind.value}_log"
    run_cell = _STEP.format(
        step=STEP,
        logs=shlex.quote(str(study.slurm)),
        cells=shlex.quote(str(study.cells_folder)),
        python=python(cluster),
    )
    return _text(
        _options(study, cluster, request, log),
        *setup(request.shape, cluster),
        "trap 'exit 143' TERM  # the job is ending: start no further cell",
        "failed=0",
        run_cell,
        *(_step(cluster, planned) for planned in request.cells),
        "exit $failed",
    )


def _step(cluster: Cluster, planned: PlannedCell) -> str:
    """Return the line that runs one cell: its name, and its share of the allocation."""
    options = sbatch_options(planned.shape, cluster) | {"ntasks": planned.shape.nodes}
    share = [f"--{name}={options[name]}" for name in _STEP_OPTIONS if name in options]
    return shlex.join(["cell", planned.slug, *share])


def followup_script(plan: Plan, jobs: Iterable[str]) -> str:
    """Return the follow-up job's script: commands that a user could also type."""
    cluster, study = plan.cluster, plan.study
    logs = study.slurm / "%j_closing_log"
    awaited = ":".join(array_ids(jobs))
    options = followup_options(cluster, FOLLOWUP_MEMORY_GB) | {
        "job-name": study.closing_name,
        "dependency": f"afterany:{awaited}" if awaited else None,
        "kill-on-invalid-dep": "yes",
        "time": FOLLOWUP_MINUTES,
        "output": f"{logs}.out",
        "error": f"{logs}.err",
    }
    program = [*cluster.python_command(sys.executable), "-m", "hpml_jobs"]
    arguments = [study.name, "--outputs", str(study.root.parent)]
    commands = [[*program, "collect", *arguments]]
    if plan.goal is not None:
        commands.insert(0, [*program, "submit", "--followup", *plan.words])
    return _text(options, *_user_setup(cluster), *map(shlex.join, commands))


def _text(options: Mapping[str, Any], *lines: str) -> str:
    """Return a script: a line per option that is set, then the lines."""
    return "\n".join([*header(options), "", *lines]) + "\n"


def header(options: Mapping[str, Any]) -> list[str]:
    """Return the first lines of a script, one per sbatch option; None and False are left out."""
    lines = ["#!/bin/bash"]
    for name, value in options.items():
        if value is True:
            lines.append(f"#SBATCH --{name}")
        elif value is not None and value is not False:
            lines.append(f"#SBATCH --{name}={shlex.quote(str(value))}")
    return lines


def python(cluster: Cluster) -> str:
    """Return the shell command that starts the job's Python."""
    return shlex.join(cluster.python_command(sys.executable))


def setup(shape: Shape, cluster: Cluster) -> list[str]:
    """Return the shell lines that come before the job's Python."""
    lines = _user_setup(cluster)
    if shape.nodes > 1:
        # here, because scontrol is outside any container
        lines.append(
            'export HPML_JOBS_HOSTS="$(scontrol show hostnames | tr "\\n" " ")"'
        )
    return lines


_SETUP = f"""\
hpml_options=$(set +o)
hpml_failed() {{
  [ -n "$hpml_line" ] || return
  hpml_words="a line of cluster.setup ended the job with exit code $1"
  echo "{JOB_WORDS}$hpml_words: ${{hpml_line//$'\\n'/; }}" >&2
  hpml_line=
  exit $(($1 ? $1 : 1))
}}
trap 'hpml_failed $?' EXIT  # also at `exit`, `set -e` and a syntax error"""
"""What ends a job at a line of cluster.setup that fails or exits, and names the line."""

_RUN_SETUP = (
    'eval "$hpml_line"; hpml_code=$?; [ $hpml_code -eq 0 ] || hpml_failed $hpml_code'
)


def _user_setup(cluster: Cluster) -> list[str]:
    """Return the lines of cluster.setup, each of which must succeed; then those before Python."""
    lines = ["unset SLURM_CLUSTERS"]  # which the job is on
    if cluster.setup:
        lines.append(_SETUP)
        for command in _commands(cluster.setup):
            lines += [f"hpml_line={shlex.quote(command)}", _RUN_SETUP]
        # as before: set -e is for the lines only
        lines.append('hpml_line=; eval "$hpml_options"')
    program, *_ = cluster.python_command(sys.executable)
    key = "cluster.python="
    if cluster.container.image:
        lines.append("unset PYTHONPATH")
        key = "cluster.container.runtime="
    reason = f"{program} was not found on the node: change {key}"
    has_program = f"command -v {shlex.quote(program)} > /dev/null"
    return [*lines, f"{has_program} || {_end_with(reason)}"]


def _commands(lines: Iterable[str]) -> Iterator[str]:
    """Yield shell commands; lines that are one only together, as `if …` and `fi`, are joined."""
    waiting: list[str] = []
    for line in lines:
        waiting.append(line)
        if _is_complete("\n".join(waiting)):
            yield "\n".join(waiting)
            waiting = []
    if waiting:
        yield "\n".join(waiting)


@functools.cache
def _is_complete(command: str) -> bool:
    """Return whether bash reads a command to its end; where there is no bash, every line is one."""
    if command.endswith("\\"):
        return False
    try:
        done = subprocess.run(
            ["/bin/bash", "-n"],
            input=command,
            capture_output=True,
            text=True,
            check=False,
            env={"LC_ALL": "C"},  # bash warns of a locale that is not there
        )
    except OSError:
        return True
    return not done.returncode and not done.stderr
