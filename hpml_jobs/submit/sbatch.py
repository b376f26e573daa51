"""The sbatch call: a clean environment, our own scripts, and SLURM's message on refusal."""

import contextlib
import os
import re
import shlex
import stat
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm.environment import scrubbed
from hpml_jobs.study.files import write_whole
from hpml_jobs.study.study import Study

_JOB_ID = re.compile(r"job (\d+)")
"""The id in sbatch's `Submitted batch job 17`."""

_PREFIX = "sbatch: "
"""The beginning of sbatch's own lines on stderr."""


class RefusedError(HpmlError):
    """sbatch refused a job; the message has SLURM's reason."""


@contextlib.contextmanager
def clean_environment() -> Iterator[None]:
    """Remove the variables of a surrounding job: sbatch exports our environment into the job."""
    before = dict(os.environ)
    clean = scrubbed(before, inside_job="SLURM_JOB_ID" in before)
    os.environ.clear()
    os.environ.update(clean)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def check_folder(study: Study) -> None:
    """Refuse a folder whose path SLURM would interpret, or in which other users can write.

    Jobs unpickle the files that submitit writes there.
    """
    if any(mark in str(study.slurm) for mark in "%\n\\"):
        raise HpmlError(
            f"{study.root}: SLURM cannot write logs to a path with %, \\ or newline; "
            "choose another outputs="
        )
    status = study.slurm.stat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
        raise HpmlError(
            f"{study.slurm}: other users can write there, and jobs run files in it; "
            "chmod 700 it if it is yours, else choose another study="
        )


def header(options: Mapping[str, Any]) -> list[str]:
    """Return the first lines of a script, one per sbatch option; None and False are left out."""
    lines = ["#!/bin/bash"]
    for name, value in options.items():
        if value is True:
            lines.append(f"#SBATCH --{name}")
        elif value is not None and value is not False:
            lines.append(f"#SBATCH --{name}={shlex.quote(str(value))}")
    return lines


def sbatch(study: Study, script: str) -> str:
    """Submit a script and return its job id.

    Raises:
        RefusedError: SLURM refused it.
        HpmlError: sbatch's answer has no job id.
    """
    path = study.slurm / f"{uuid.uuid4().hex}.sh"
    write_whole(path, script.encode())
    with clean_environment():
        done = subprocess.run(["sbatch", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RefusedError(slurm_message(done.stderr or done.stdout))
    match = _JOB_ID.search(done.stdout)
    if match is None:
        raise HpmlError(
            f"sbatch printed {done.stdout!r}; check squeue --me before you submit again"
        )
    job = match[1]
    path.replace(study.slurm / f"{job}_submission.sh")
    return job


def slurm_message(text: str) -> str:
    """Return SLURM's own lines of an error text, without Python's."""
    lines = [line.strip() for line in text.splitlines()]
    slurms = [line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)]
    return "; ".join(slurms) or " ".join(line for line in lines if line)
