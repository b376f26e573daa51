"""Cells run here or on named hosts: one by one, in fresh processes, with the same records."""

import functools
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from importlib.util import find_spec

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.processes import die_with_parent
from hpml_jobs.job.workers import JOB_VARIABLE
from hpml_jobs.plan.cells import Plan, PlannedCell
from hpml_jobs.study.cell_folder import CellFolder, Progress
from hpml_jobs.study.manifest import ManifestEvent, ManifestLine, copies_of
from hpml_jobs.submit.job_requests import in_rounds
from hpml_jobs.submit.selection import Selection
from hpml_jobs.submit.send import write_cells
from hpml_jobs.submit.ssh import run_on_hosts

POLL_S = 0.2


def announce(plan: Plan, cells: Sequence[PlannedCell], job: str) -> None:
    """Write cells, and note in the study that a run of this machine has them.

    The study is locked meanwhile, so that no other submission selects them too.

    Raises:
        UsageError: they would run here, where torch is not installed.
    """
    if not cells:
        return
    if find_spec("torch") is None and not plan.cluster.hosts:
        raise UsageError(
            "torch is not installed here: pip install torch torchvision, or use a cluster="
        )
    write_cells(plan.study, cells)
    line = ManifestLine(
        happening=ManifestEvent.SENT,
        batch=uuid.uuid4().hex,
        cells=tuple(planned.slug for planned in cells),
        files=copies_of({planned.slug: planned.file for planned in cells}),
        jobs=(job,) * len(cells),
    )
    plan.study.append(line)


def run_all(
    selection: Selection,
    job: str,
    on_progress: Callable[[int, CellFolder, Progress], None],
    on_end: Callable[[CellFolder], None],
) -> None:
    """Run the announced cells one by one, in seeded rounds of all settings.

    A cell that fails does not stop the next one.
    """
    study, cluster, cells = selection.plan.study, selection.plan.cluster, selection.send
    if cells:
        study.write_cluster(cluster)
    _end_cells_as_by_ctrl_c()
    for index, planned in enumerate(in_rounds(cells)):
        folder = study.cell(planned.slug)
        report = functools.partial(on_progress, index, folder)
        try:
            _run(cluster, planned, folder, job, report)
        finally:  # after Ctrl-C, too: what was measured before counts
            on_end(folder)


def _end_cells_as_by_ctrl_c() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def _run(
    cluster: Cluster,
    planned: PlannedCell,
    folder: CellFolder,
    job: str,
    on_progress: Callable[[Progress], None],
) -> None:
    """Run one cell in a process of its own, here or on the hosts."""
    if cluster.hosts:
        run_on_hosts(cluster, planned.cell.nodes, job, folder, on_progress)
        return
    attempt = folder.attempt(f"{job}.r0")
    process = subprocess.Popen(
        [sys.executable, "-m", "hpml_jobs.job", str(folder.root)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=os.environ | {JOB_VARIABLE: job},
        process_group=0,  # Ctrl-C is for this process, which ends the cell
        preexec_fn=die_with_parent,  # noqa: PLW1509  (it only calls prctl)
    )
    try:
        while process.poll() is None:
            on_progress(attempt.read_progress() or Progress())
            time.sleep(POLL_S)
    finally:
        # Ctrl-C: the job's own SIGTERM handler ends the workers
        if process.poll() is None:
            process.terminate()
            process.wait()
