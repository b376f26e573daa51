"""The same cells on this machine: one after another, each in a fresh process, the same records."""

import functools
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable

from hpml_jobs.core.processes import die_with_parent
from hpml_jobs.job.run import JOB_VARIABLE
from hpml_jobs.plan.plan import Plan, PlannedCell
from hpml_jobs.study.attempt import Progress
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.manifest import ManifestEvent, ManifestLine
from hpml_jobs.submit.batches import ladders, shuffled
from hpml_jobs.submit.send import write_cells

POLL_S = 0.2


def run_all(
    plan: Plan,
    cells: list[PlannedCell],
    watch: Callable[[int, CellFolder, Progress], None],
    ended: Callable[[CellFolder], None],
) -> None:
    """Run cells one by one in seeded random order; `watch` is called while one runs, `ended` after.

    The order spreads what drifts over all cells; repeats of one would else share a moment. A cell
    that fails does not stop the next one, its outcome is in the study; it ends its own ladder.
    """
    if not cells:
        return
    rungs = [one for batch in ladders(cells) for one in batch.cells]
    rest = [one for one in cells if not one.file.ladder]
    cells = [*rungs, *(shuffled(rest) if rest else [])]
    job = f"local-{os.getpid()}-{int(time.time())}"
    slugs = tuple(one.cell.slug for one in cells)
    line = ManifestLine(
        happening=ManifestEvent.SENT, batch=uuid.uuid4().hex, cells=slugs, jobs=(job,) * len(slugs)
    )
    write_cells(plan.study, cells)
    plan.study.keep_cluster(plan.cluster)
    plan.study.append(line)
    over: set[str] = set()
    for index, one in enumerate(cells):
        folder = plan.study.cell(one.cell.slug)
        if one.file.ladder and one.cell.ladder in over:
            continue
        code = _run_one(folder, job, functools.partial(watch, index, folder))
        if one.file.ladder and code:
            over.add(one.cell.ladder)
        ended(folder)


def _run_one(folder: CellFolder, job: str, watch: Callable[[Progress], None]) -> int:
    command = [sys.executable, "-m", "hpml_jobs.job", str(folder.root)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        env=os.environ | {JOB_VARIABLE: job},
        preexec_fn=die_with_parent,  # noqa: PLW1509  (it only calls prctl)
    )
    try:
        while process.poll() is None:
            watch(progress(folder, job))
            time.sleep(POLL_S)
    finally:
        if process.poll() is None:  # Ctrl-C: the job's own SIGTERM handler ends the workers
            process.terminate()
            process.wait()
    return process.returncode


def progress(folder: CellFolder, job: str) -> Progress:
    """How far a job's attempt is; zeros before its first words."""
    return folder.attempt(f"{job}.r0").read_progress() or Progress()
