"""Calling sbatch: a clean environment, our own scripts, and SLURM's words when it says no."""

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

_ANSWER = re.compile(r"job (\d+)")
"""The id in sbatch's `Submitted batch job 17`."""

_SBATCH = "sbatch: "
"""How sbatch begins its own lines on stderr."""


class RefusedError(HpmlError):
    """sbatch said no; the message is SLURM's words."""


@contextlib.contextmanager
def clean_environment() -> Iterator[None]:
    """sbatch exports our environment into the job: nothing of a surrounding job may be in it."""
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
    """Refuse a folder whose names SLURM reads itself, or in which others could write what we run.

    Jobs unpickle what submitit lays down there.
    """
    if any(mark in str(study.slurm) for mark in "%\n\\"):
        raise HpmlError(
            f"{study.root}: SLURM cannot write logs to a path with %, \\ or newline; "
            "choose another outputs="
        )
    about = study.slurm.stat()
    if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o022:
        raise HpmlError(
            f"{study.slurm}: others may write there, and jobs run what lies in it; "
            "chmod 700 it if it is yours, else choose another study="
        )


def header(options: Mapping[str, Any]) -> list[str]:
    """The first lines of a script: what it asks for; names as sbatch has them, None left out."""
    lines = ["#!/bin/bash"]
    for name, value in options.items():
        if value is True:
            lines.append(f"#SBATCH --{name}")
        elif value is not None and value is not False:
            lines.append(f"#SBATCH --{name}={shlex.quote(str(value))}")
    return lines


def sbatch(study: Study, script: str) -> str:
    """Send a script; returns its job id.

    Raises:
        RefusedError: SLURM refused it.
        HpmlError: sbatch did not say what became of it.
    """
    path = study.slurm / f"{uuid.uuid4().hex}.sh"
    write_whole(path, script.encode())
    with clean_environment():
        done = subprocess.run(["sbatch", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RefusedError(slurm_words(done.stderr or done.stdout))
    told = _ANSWER.search(done.stdout)
    if told is None:
        raise HpmlError(f"sbatch said {done.stdout!r}; look with squeue --me before sending again")
    job = told[1]
    path.replace(study.slurm / f"{job}_submission.sh")
    return job


def slurm_words(said: str) -> str:
    """SLURM's own words, without Python's."""
    lines = [line.strip() for line in said.splitlines()]
    own = [line.removeprefix(_SBATCH) for line in lines if line.startswith(_SBATCH)]
    return "; ".join(own) or " ".join(line for line in lines if line)
