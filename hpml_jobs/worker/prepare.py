"""Count images and parameters before submission: `python -m hpml_jobs.worker.prepare …`.

It imports the user's code, opens the data set (with `--download` after downloading it) and builds
the model. The login node runs it in a process of its own, with the Python of the jobs. The answer
is one line of JSON on stdout; an error is one line on stderr.
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
    """Return 0 and print the counts, or return 1 or NO_TORCH_CODE and print one line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m hpml_jobs.worker.prepare")
    parser.add_argument("--workload", required=True, help="the workload as JSON")
    parser.add_argument("--data-root", required=True, type=Path)
    parser.add_argument("--code-root", required=True, help="folder of the user's code")
    parser.add_argument("--download", action="store_true", help="download the data set first")
    options = parser.parse_args(arguments)
    sys.path.insert(0, options.code_root)
    try:
        workload = msgspec.json.decode(options.workload, type=Workload)
        # Keep what user code and torchvision print out of the answer.
        with contextlib.redirect_stdout(sys.stderr):
            counts = prepare(workload, options.data_root, download=options.download)
    except Exception as error:  # user code may raise anything, and the caller needs one line
        sys.stderr.write(f"{reason_of(error)}\n")
        return NO_TORCH_CODE if lacks_torch(error) else 1
    sys.stdout.write(msgspec.json.encode(counts).decode() + "\n")
    return 0


def prepare(workload: Workload, data_root: Path, *, download: bool = False) -> Counts:
    """Open the data and build the model as a job does, and count both.

    Raises:
        HpmlError: data or model is missing, or does not fit the workload.
    """
    # Imported late: torch takes seconds to load, and a usage error must not wait for it.
    from hpml_jobs.worker import models  # noqa: PLC0415
    from hpml_jobs.worker.data import datasets  # noqa: PLC0415

    if download:
        datasets.fetch(workload, data_root)
    data = datasets.open_data(workload, data_root)
    models.build_loss(workload)
    try:
        parameters = models.count_parameters(models.build(workload))
    except HpmlError:
        raise
    except Exception as error:
        raise HpmlError(f"workload.model={workload.model}: {reason_of(error)}") from error
    return Counts(images=data.total, effective=datasets.length(data.train), parameters=parameters)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
