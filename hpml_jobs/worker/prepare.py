"""Count images and parameters before submission: `python -m hpml_jobs.worker.prepare …`.

It imports the user's code, opens the data set (with `--download` after downloading it), builds
the model, and with `--try-batch` trains on one small batch. The login node runs it in a process of
its own, with the Python of the jobs. The answer is one line of JSON on stdout; an error is one line
on stderr.
"""

import argparse
import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.core.answers import NO_TORCH_CODE, TRIAL_CODE, Counts
from hpml_jobs.core.built_in import Unit
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.features import load, loader_kind
from hpml_jobs.core.processes import leave
from hpml_jobs.core.source_files import imported_code
from hpml_jobs.core.strategies import Device, Loader
from hpml_jobs.core.text import duration_text
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker.data.user_code import check_args, place_of
from hpml_jobs.worker.failure import lacks_torch, reason_of

LIMIT_S = 60
LIMIT_BYTES = 8 * 10**9
"""Time and memory that the trial of a batch may take on a login node."""

_THREADS = 4
_POLL_S = 0.05


class BatchTrial(NamedTuple):
    """Batches to try: the device of the cells, sizes, and the device to try them on.

    With `has_bounds` the process prints its answer and ends if the trial reaches a limit.
    `as_tensors`: the data set must offer its images as tensors (loader=device).
    """

    device: Device = Device.CPU
    batches: tuple[int, ...] = ()
    on: str = "cpu"
    has_bounds: bool = False
    as_tensors: bool = False


class TrialError(HpmlError):
    """A batch of the user's code was tried and cannot be trained."""


def main(arguments: list[str]) -> int:
    """Return 0 and print the counts, or return another code and print one line on stderr.

    The codes are 1, NO_TORCH_CODE without torch, TRIAL_CODE if a batch cannot be trained.
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
    parser.add_argument(
        "--device", default="cpu", help="the cells' device: cuda or cpu"
    )
    parser.add_argument(
        "--try-batch", type=int, nargs="*", default=[], help="sizes of batches"
    )
    options = parser.parse_args(arguments)
    sys.path.insert(0, options.code_root)
    device = Device(options.device)
    try:
        workload = msgspec.json.decode(options.workload, type=Workload)
        # Keep what user code and torchvision print out of the answer.
        with contextlib.redirect_stdout(sys.stderr):
            counts = prepare(
                workload,
                options.data_root,
                download=options.download,
                request=BatchTrial(
                    device,
                    tuple(options.try_batch),
                    has_bounds=True,
                    as_tensors=options.as_tensors,
                ),
            )
    except (
        BaseException
    ) as error:  # user code may raise anything, and the caller needs one line
        sys.stderr.write(f"{reason_of(error)}\n")
        if isinstance(error, TrialError):
            return TRIAL_CODE
        return NO_TORCH_CODE if lacks_torch(error) else 1
    sys.stdout.write(_line(counts))
    return 0


def _line(counts: Counts) -> str:
    return msgspec.json.encode(counts).decode() + "\n"


def prepare(
    workload: Workload,
    data_root: Path,
    *,
    download: bool = False,
    request: BatchTrial | None = None,
) -> Counts:
    """Open the data and build the model as a job does, count both, and try the batches asked for.

    Raises:
        HpmlError: data or model is missing, or does not fit the workload.
        TrialError: a batch cannot be trained.
    """
    # Imported late: torch takes seconds to load, and a usage error must not wait for it.
    import torch  # noqa: PLC0415

    from hpml_jobs.worker import models  # noqa: PLC0415
    from hpml_jobs.worker.data import datasets  # noqa: PLC0415
    from hpml_jobs.worker.trial import Trial, UntriedError  # noqa: PLC0415

    before = {*sys.modules}
    if download:
        datasets.fetch(workload, data_root)
    check_args(workload)
    data = datasets.open_data(workload, data_root)
    models.build_loss(workload)
    counts = Counts(
        images=data.total, effective=datasets.length(data.train), parameters=None
    )
    request = request or BatchTrial()
    if request.as_tensors:
        load(loader_kind(Loader.DEVICE).check)(data, workload)
    trial = Trial(workload, request.device, request.on)
    takes_memory = request.batches or workload.own_code
    try:
        if workload.throughput_unit is Unit.TOKENS:
            tokens = trial.attempt(
                f"workload.data={workload.data}: item 0 of dataset(True)",
                lambda: datasets.tokens_of_input(data.train),
            )
            counts = msgspec.structs.replace(counts, tokens=tokens)
        with contextlib.nullcontext() if takes_memory else torch.device("meta"):
            model = trial.attempt(
                f"workload.model={workload.model}: building the model",
                lambda: models.build(workload),
            )
        if ":" in workload.optimizer:
            trial.optimizer(model)
        trial.try_schedule()
    except UntriedError as error:
        imported = imported_code(before).files
        return msgspec.structs.replace(counts, untried=str(error), imported=imported)
    counts = msgspec.structs.replace(
        counts,
        parameters=models.count_parameters(model),
        imported=imported_code(
            before
        ).files,  # before the trial, which not every submission makes
    )
    try:
        with _bounded(counts) if request.has_bounds else contextlib.nullcontext():
            for size in request.batches:
                trial.run(data, model, size)
    except UntriedError as error:
        return msgspec.structs.replace(counts, untried=str(error))
    except HpmlError as error:
        raise TrialError(str(error)) from error
    return counts


@contextlib.contextmanager
def _bounded(counts: Counts) -> Iterator[None]:
    """Exit the process with code 0 and an answer if the block takes too long or too much memory.

    A thread watches the memory that the process holds. A limit of the kernel on its address space
    would refuse what torch only reserves.
    """
    import torch  # noqa: PLC0415

    torch.set_num_threads(min(_THREADS, torch.get_num_threads()))
    deadline, most = time.monotonic() + LIMIT_S, _resident_bytes() + LIMIT_BYTES
    main_thread, has_ended = threading.get_ident(), threading.Event()

    def watch() -> None:
        while not has_ended.wait(_POLL_S):
            reason = ""
            if time.monotonic() > deadline:
                frame = sys._current_frames().get(main_thread)
                place = place_of(traceback.extract_stack(frame)) if frame else ""
                reason = f"it took more than {duration_text(LIMIT_S)}{place}"
            elif _resident_bytes() > most:
                reason = f"it took more than {LIMIT_BYTES / 1e9:.0f} GB of memory"
            if reason:
                os.write(
                    1, _line(msgspec.structs.replace(counts, untried=reason)).encode()
                )
                os._exit(0)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        has_ended.set()
        watcher.join()


def _resident_bytes() -> int:
    """Return the memory that this process holds; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
