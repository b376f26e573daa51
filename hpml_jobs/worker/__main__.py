"""One rank of a cell: `python -m hpml_jobs.worker CELL_FOLDER ATTEMPT_ID`."""

import os
import sys
from pathlib import Path

from hpml_jobs.core.processes import die_with_parent, ignore_submitit_signal, leave
from hpml_jobs.errors import HpmlError
from hpml_jobs.study.attempt import AttemptFolder
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.worker.failure import describe, report


def main(cell_folder: str, attempt_id: str) -> int:
    """Measure, and say how it went: exit code 0, or 1 with errors/rank<R>.json."""
    die_with_parent()
    ignore_submitit_signal()
    folder = CellFolder(Path(cell_folder))
    attempt = folder.attempt(attempt_id)
    try:
        _measure(folder, attempt)
    except BaseException as error:  # whatever it was, the job's wrapper must hear of it
        _tell(error, attempt)
        return 1
    return 0


def _measure(folder: CellFolder, attempt: AttemptFolder) -> None:
    file = folder.read()
    sys.path.insert(0, file.code_root)
    # Its notes (no CUDA here, start, stop) are nothing for a cell's log.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    try:
        # Only now: what is above must hold while torch loads, which takes seconds.
        from hpml_jobs.worker.loop import measure  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise HpmlError(
            f"{missing.name} is not installed for {sys.executable}: install hpml-jobs[worker], "
            "or let the job use another Python (cluster.python=…)"
        ) from missing
    measure(file, attempt)


def _tell(error: BaseException, attempt: AttemptFolder) -> None:
    found = describe(error, int(os.environ.get("RANK", "0")))
    report(found, attempt)
    words = found.reason if isinstance(error, HpmlError) else found.traceback.rstrip()
    sys.stderr.write(f"rank {found.rank}: {words}\n")


if __name__ == "__main__":
    leave(main(*sys.argv[1:]))
