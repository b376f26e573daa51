"""One rank of a cell: `python -m hpml_jobs.worker CELL_FOLDER ATTEMPT_ID`."""

import os
import sys
from pathlib import Path

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.processes import KEPT_ALIVE, die_with_parent, leave, request_stacks
from hpml_jobs.core.source_files import changed_files, refuse_changed
from hpml_jobs.core.stack_files import write_stacks_on_signals
from hpml_jobs.study.cell_folder import AttemptFolder, CellFolder
from hpml_jobs.worker.failure import describe, is_collective_timeout, write_report
from hpml_jobs.worker.fork_safety import imports_for_life


def main(cell_folder: str, attempt_id: str) -> int:
    """Measure; return exit code 0, or 1 with a report in errors/rank<R>.json."""
    die_with_parent()
    folder = CellFolder(Path(cell_folder))
    attempt = folder.attempt(attempt_id)
    write_stacks_on_signals(str(attempt.stacks_of(_rank())))
    try:
        _measure(folder, attempt)
    except BaseException as error:  # the job's wrapper needs a report of every error
        KEPT_ALIVE.append(error)  # its frames may hold the group
        _report(error, attempt)
        return 1
    return 0


def _measure(folder: CellFolder, attempt: AttemptFolder) -> None:
    file = folder.read()
    if file.cell.workload.own_code:
        sys.path.insert(0, file.code_root)
    refuse_changed(changed_files(file.cell.workload.code, file.import_root))
    try:
        # Imported last: torch takes seconds to load, and a failure to load must be reported.
        with imports_for_life():
            import torch._dynamo  # noqa: F401, PLC0415 -- the first optimizer imports it

            from hpml_jobs.worker.loop import measure  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise HpmlError(
            f"{missing.name} is not installed for {sys.executable}: install hpml-jobs[worker] "
            "there, or use another Python for the job (cluster.python=)"
        ) from missing
    measure(file, attempt)


def _report(error: BaseException, attempt: AttemptFolder) -> None:
    rank_error = describe(error, _rank())
    write_report(rank_error, attempt)
    if is_collective_timeout(error):
        # of all ranks of this node: torchrun ends them next
        request_stacks(os.getppid())
    is_expected = isinstance(error, HpmlError)
    text = rank_error.reason if is_expected else rank_error.traceback.rstrip()
    sys.stderr.write(f"rank {rank_error.rank}: {text}\n")


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


if __name__ == "__main__":
    leave(main(*sys.argv[1:]))
