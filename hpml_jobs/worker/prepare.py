"""Count images and parameters before submission: `python -m hpml_jobs.worker.prepare …`.

It imports the user's code, opens the data set (with `--download` after downloading it), and builds
the model. The login node runs it in a process of its own, with the Python of the jobs. The answer
is one line of JSON on stdout; an error is one line on stderr.
"""

import argparse
import contextlib
import re
import sys
from pathlib import Path

import msgspec

from hpml_jobs.core.answers import NO_TORCH_CODE, Counts
from hpml_jobs.core.built_in import Unit
from hpml_jobs.core.processes import leave
from hpml_jobs.core.source_files import imported_code
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker.data.user_code import check_args
from hpml_jobs.worker.failure import is_oom, lacks_torch, reason_of

_NEEDS_GPU = re.compile(
    r"cuda|nvidia|triton|gpu|not implemented for|same device|_cpu|active drivers",
    re.IGNORECASE,
)
"""Words of errors that a model may raise on a CPU only."""


def main(arguments: list[str]) -> int:
    """Return 0 and print the counts, or return another code and print one line on stderr.

    The codes are 1, and NO_TORCH_CODE without torch.
    """
    parser = argparse.ArgumentParser(prog="python -m hpml_jobs.worker.prepare")
    parser.add_argument("--workload", required=True, help="the workload as JSON")
    parser.add_argument("--data-root", required=True, type=Path)
    parser.add_argument("--code-root", required=True, help="folder of the user's code")
    parser.add_argument(
        "--download", action="store_true", help="download the data set first"
    )
    parser.add_argument(
        "--as-tensors", action="store_true", help="check for loader=device"
    )
    options = parser.parse_args(arguments)
    sys.path.insert(0, options.code_root)
    try:
        workload = msgspec.json.decode(options.workload, type=Workload)
        # Keep what user code and torchvision print out of the answer.
        with contextlib.redirect_stdout(sys.stderr):
            counts = prepare(
                workload,
                options.data_root,
                download=options.download,
                as_tensors=options.as_tensors,
            )
    except (
        BaseException
    ) as error:  # user code may raise anything, and the caller needs one line
        sys.stderr.write(f"{reason_of(error)}\n")
        return NO_TORCH_CODE if lacks_torch(error) else 1
    sys.stdout.write(msgspec.json.encode(counts).decode() + "\n")
    return 0


def prepare(
    workload: Workload,
    data_root: Path,
    *,
    download: bool = False,
    as_tensors: bool = False,
) -> Counts:
    """Open the data and build the model as a job does, and count both.

    `as_tensors`: the data set must offer its images as tensors (loader=device).

    Raises:
        HpmlError: data or model is missing, or does not fit the workload.
    """
    # Imported late: torch takes seconds to load, and a usage error must not wait for it.
    import torch  # noqa: PLC0415

    from hpml_jobs.worker import models  # noqa: PLC0415
    from hpml_jobs.worker.data import datasets  # noqa: PLC0415

    before = {*sys.modules}
    if download:
        datasets.fetch(workload, data_root)
    check_args(workload)
    data = datasets.open_data(workload, data_root)
    models.build_loss(workload)
    if as_tensors:
        from hpml_jobs.worker.data.device_loading import check_tensors  # noqa: PLC0415

        check_tensors(data, workload)
    tokens = parameters = None
    if workload.throughput_unit is Unit.TOKENS:
        tokens = datasets.tokens_of_input(data.train)
    try:
        with contextlib.nullcontext() if workload.own_code else torch.device("meta"):
            parameters = models.count_parameters(models.build(workload))
    except RuntimeError as error:
        # a job has more memory, and a GPU
        if not is_oom(error) and not _NEEDS_GPU.search(str(error)):
            raise
    return Counts(
        images=data.total,
        parameters=parameters,
        tokens=tokens,
        imported=imported_code(before).files,
    )


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
