"""The sbatch call: a clean environment, our own scripts, and SLURM's message on refusal."""

import contextlib
import os
import re
import shlex
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm.environment import scrubbed
from hpml_jobs.study.files import others_can_write, take_from_others, write_whole
from hpml_jobs.study.study import Study

_JOB_ID = re.compile(r"job ([0-9]{1,15})")
"""The id in sbatch's `Submitted batch job 17`."""

_PREFIX = "sbatch: "
"""The beginning of sbatch's own lines on stderr."""


class RefusedError(HpmlError):
    """sbatch refused a job; the message has SLURM's reason."""


class NoJobIdError(HpmlError):
    """sbatch ended well without a job id: SLURM may have the job."""


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
    if others_can_write(study.slurm):
        raise HpmlError(
            f"{study.slurm}: other users can write there, and jobs run files in it; "
            "chmod 700 it if it is yours, else choose another study="
        )
    if not study.cells_folder.exists():  # doctor's study has none
        return
    if study.cells_folder.stat().st_uid != os.geteuid():
        raise HpmlError(
            f"{study.cells_folder} is another user's, and jobs run the code that its files name: "
            "choose another study="
        )
    take_from_others(study.cells_folder)


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
        NoJobIdError: sbatch's answer has no job id.
        HpmlError: the script cannot be written.
    """
    path = write_script(study, script)
    return answer_of(start_sbatch(path), study, path)


def write_script(study: Study, script: str) -> Path:
    """Write a script into the study's folder and return its path.

    Raises:
        HpmlError: it cannot be written.
    """
    path = study.slurm / f"{uuid.uuid4().hex}.sh"
    with writing(path):
        write_whole(path, script.encode())
    return path


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the file system into one that names the file.

    Raises:
        HpmlError: the file cannot be written.
    """
    try:
        yield
    except OSError as fault:
        raise HpmlError(f"{path} cannot be written: {fault.strerror}") from fault


def start_sbatch(script: Path) -> subprocess.Popen[str]:
    """Start the sbatch of a script; it waits for `answer_of`, so that its PID can be noted before.

    If this program ends before, sbatch does not run. It is in a session of its own: Ctrl-C in the
    terminal does not end it halfway.
    """
    with clean_environment():
        return subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _ && exec sbatch "$1" < /dev/null', "sh", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )


def answer_of(process: subprocess.Popen[str], study: Study, script: Path) -> str:
    """Let sbatch submit and return the job's id; then the script is named after the job.

    Raises:
        RefusedError: SLURM refused it.
        NoJobIdError: sbatch's answer has no job id.
    """
    with process:
        try:
            out, err = process.communicate("submit\n")
        except BaseException:
            process.kill()
            process.wait()
            raise
    if process.returncode:
        raise RefusedError(slurm_message(err or out))
    match = _JOB_ID.search(out)
    if match is None:
        raise NoJobIdError(f"sbatch ended with exit code 0, but printed no job id ({out[:200]!r})")
    job = match[1]
    with contextlib.suppress(OSError):  # the name is for people
        script.replace(study.slurm / f"{job}_submission.sh")
    return job


def slurm_message(text: str) -> str:
    """Return SLURM's own lines of an error text, without Python's."""
    lines = [line.strip() for line in text.splitlines()]
    slurms = [line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)]
    return "; ".join(slurms) or " ".join(line for line in lines if line)
