"""The record of a script: `python -m hpml_jobs.worker.observer CELL_FOLDER ATTEMPT_ID`."""

import sys
import time
from pathlib import Path

import msgspec
import numpy as np

from hpml_jobs.core.cell import Cell, CellFile
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.record import Facts
from hpml_jobs.study.cell_folder import AttemptFolder, CellFolder
from hpml_jobs.study.files import FILE_LAG_S, read_valid, tail
from hpml_jobs.worker.observer.refusals import Observed, unmeasured
from hpml_jobs.worker.observer.together import begin_together
from hpml_jobs.worker.results import RankResult, SharedResult, write_gathered


def main(cell_folder: str, attempt_id: str) -> int:
    """Write the record and print what is to be said of it; else print the reason and return 1."""
    folder = CellFolder(Path(cell_folder))
    attempt = folder.attempt(attempt_id)
    file = folder.read()
    try:
        note = merge(file, attempt)
    except HpmlError as reason:
        print(reason)  # noqa: T201  (the job reads it)
        return 1
    print(note)  # noqa: T201
    return 0


def merge(file: CellFile, attempt: AttemptFolder) -> str:
    """Write the record of an attempt; return whether the script was ended, as a sentence or "".

    Raises:
        HpmlError: there are no times that count, with the reason.
    """
    cell, script = file.cell, file.cell.script
    if script is None:
        raise HpmlError(
            f"{attempt.cell_folder} is not the cell of a script: use hpml_jobs.worker"
        )
    paths = _wait_for_files(attempt, cell)
    fault = _fault(attempt)
    if reason := unmeasured(cell, script, [*paths.values()]):
        raise HpmlError(fault or reason)
    of_ranks = sorted(paths.items(), key=lambda item: item[1].rank.rank)
    roles_of_ranks = [
        {epoch.role for epoch in observed.rank.epochs} for _, observed in of_ranks
    ]
    roles = set.intersection(*roles_of_ranks)
    results = [_result(*of_rank, roles) for of_rank in of_ranks]
    _, first = of_ranks[0]
    facts = first.facts or Facts()
    if fault:
        facts = msgspec.structs.replace(facts, missing=(*facts.missing, fault))
    shared = SharedResult(first.model, facts)
    write_gathered(attempt, file, begin_together(results), shared)
    if not any(observed.is_cut for observed in paths.values()):
        return ""
    return f"{script.path} was ended after its last measurement: stop=false lets it run to its end"


def _result(path: Path, observed: Observed, roles: set[Role]) -> RankResult:
    """Return what a rank measured in the windows that all ranks have."""
    with np.load(path.with_suffix(".npz")) as content:
        arrays = dict(content)
    epochs = tuple(epoch for epoch in observed.rank.epochs if epoch.role in roles)
    rank = msgspec.structs.replace(observed.rank, epochs=epochs)
    missing = tuple(f"rank {rank.rank}: {reason}" for reason in observed.missing)
    return RankResult(rank, arrays, missing)


def _wait_for_files(attempt: AttemptFolder, cell: Cell) -> dict[Path, Observed]:
    """Return what each process wrote; those of other nodes may come late."""
    deadline = time.monotonic()
    if cell.nodes > 1:
        deadline += FILE_LAG_S
    while True:
        observed = {}
        for path in attempt.observed.glob("rank*.json"):
            if content := read_valid(path, Observed):
                observed[path] = content
        if len(observed) >= cell.processes or time.monotonic() >= deadline:
            return observed
        time.sleep(0.5)


def _fault(attempt: AttemptFolder) -> str | None:
    """Return why a process could not be measured; None if all could."""
    texts = (tail(path, 4096) for path in sorted(attempt.observed.glob("fault-*.txt")))
    return next((text.splitlines()[0] for text in texts if text), None)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
