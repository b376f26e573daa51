"""What must be known before submission: `python -m hpml_jobs.worker.prepare --workload JSON …`.

Imports the user's own code, opens the data set (with `--download`: fetches it first), counts its
training images and the model's parameters. The login side runs it as a process of its own, with
the Python of the jobs; the answer is one line of JSON, a problem is one line on stderr.
"""

import argparse
import contextlib
import sys
from pathlib import Path

import msgspec

from hpml_jobs.core.workload import NO_TORCH_CODE, Counts, Workload
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.failure import lacks_torch, reason_of


def main(arguments: list[str]) -> int:
    """Exit code 0 with the answer on stdout, else 1 or NO_TORCH_CODE with one line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m hpml_jobs.worker.prepare")
    parser.add_argument("--workload", required=True, help="the workload as JSON")
    parser.add_argument("--data-root", required=True, type=Path)
    parser.add_argument("--code-root", required=True, help="where the user's own code is found")
    parser.add_argument("--download", action="store_true", help="fetch the data set first")
    asked = parser.parse_args(arguments)
    sys.path.insert(0, asked.code_root)
    try:
        workload = msgspec.json.decode(asked.workload, type=Workload)
        # What the user's code or torchvision prints is not the answer.
        with contextlib.redirect_stdout(sys.stderr):
            counts = prepare(workload, asked.data_root, download=asked.download)
    except Exception as fault:  # the user's code may raise anything; the asker wants one line
        sys.stderr.write(f"{reason_of(fault)}\n")
        return NO_TORCH_CODE if lacks_torch(fault) else 1
    sys.stdout.write(msgspec.json.encode(counts).decode() + "\n")
    return 0


def prepare(workload: Workload, data_root: Path, *, download: bool = False) -> Counts:
    """Open the data and build the model, as a job will.

    Raises:
        HpmlError: something is missing or is not what the workload says.
    """
    # Only now: torch takes seconds to import, and wrong usage must not wait for it.
    from hpml_jobs.worker import models  # noqa: PLC0415
    from hpml_jobs.worker.data import datasets as data  # noqa: PLC0415

    if download:
        data.fetch(workload, data_root)
    found = data.open_data(workload, data_root)
    models.build_loss(workload)
    try:
        parameters = models.count(models.build(workload))
    except HpmlError:
        raise
    except Exception as fault:
        raise HpmlError(f"workload.model={workload.model}: {reason_of(fault)}") from fault
    return Counts(images=found.found, effective=data.length(found.train), parameters=parameters)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
