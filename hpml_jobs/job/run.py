"""Run one attempt of a cell on its node: start the workers, wait, judge and publish the result."""

import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from hpml_jobs.core.cell import CellFile, Outcome
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.processes import die_with_parent, ignore_submitit_signal
from hpml_jobs.core.record import Attempt, Neighbours
from hpml_jobs.core.script import Merged
from hpml_jobs.core.text import VERSION
from hpml_jobs.job.card_samples import sampler_of
from hpml_jobs.job.end import (
    apply_time_limit,
    close_previous,
    ended_ranks,
    finished_record,
    judge,
    keep_measured,
    killed_ranks,
    publish,
    stopped_end,
    with_next_step,
)
from hpml_jobs.job.script import merge_observed
from hpml_jobs.job.workers import Callbacks, Job, run_workers
from hpml_jobs.slurm.commands import neighbour_jobs
from hpml_jobs.slurm.jobs import NO_SPACE_CODE, is_slurm
from hpml_jobs.study.cell_folder import AttemptEnd, AttemptFolder, CellFolder, utc_now
from hpml_jobs.study.files import FILE_LAG_S, encode, others_can_write, write_whole

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

_RESERVE_BYTES = 16_384
"""Room for the exit report, which is written last."""


class NoSpaceError(HpmlError):
    """The disk of the study is full, or the user's quota is used up."""


def run_task(cells: str, slugs: Sequence[str]) -> None:
    """Measure the cell of this array task, as submitit's function: exit with 0 if it finished.

    `cells` is the folder of the study's cells; `slugs` are those of the array, a plain job has one.
    """
    die_with_parent()
    ignore_submitit_signal()
    slug = slugs[int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))]
    outcome = _attempt_to_exit(f"{cells}/{slug}")
    sys.exit(0 if outcome.finished else 1)


def _attempt_to_exit(folder: str) -> Outcome:
    """Measure the cell in a folder; exit where that cannot be said in the folder itself."""
    try:
        return attempt_cell(CellFolder(Path(folder))).outcome
    except HpmlError as fault:
        print_safely(f"hpml-jobs: {fault}", error=True)
        sys.exit(NO_SPACE_CODE if isinstance(fault, NoSpaceError) else 1)


def attempt_cell(folder: CellFolder, job: Job | None = None) -> AttemptEnd:
    """Measure a cell on this node, in the surrounding job by default; return how it ended.

    A cell that has a valid record is left as it is; a requeued cell starts over. Of several nodes,
    the first one writes the attempt's files and publishes the record.

    Raises:
        NoSpaceError: the disk is full.
        HpmlError: the cell cannot be read, or its folder is gone.
    """
    with _explaining(folder):
        job, started = job or Job.current(), utc_now()
        file = folder.read()
        record = finished_record(folder, file)
        if record is not None:
            print_safely(
                f"{folder.slug}: already measured by attempt {record.attempt.id}, nothing to do"
            )
            return AttemptEnd(
                attempt=record.attempt, outcome=record.outcome, reason=record.reason
            )
        attempt_id = f"{job.id}.r{job.restart}"
        attempt = Attempt(
            id=attempt_id, job=job.id, restart=job.restart, started=started
        )
        paths = folder.attempt(attempt.id)
        paths.errors.mkdir(parents=True, exist_ok=True)
        if job.node != 0:
            return _end_of(folder, file, attempt, job)
        close_previous(folder, attempt)
        write_whole(paths.about, encode(attempt), parents=False)
        write_whole(paths.reserve, bytes(_RESERVE_BYTES), parents=False)
        write_whole(folder.current, attempt.id.encode(), parents=False)
        before = neighbour_jobs()
        end = _with_neighbours(_end_of(folder, file, attempt, job), before)
        end = _with_disk_reason(end, folder)
        try:
            with _explaining(folder):
                end = publish(folder, file, paths, end)
        except NoSpaceError as fault:  # the reserve has room to say so
            end = replace(end, outcome=Outcome.FAILED, reason=str(fault))
        with contextlib.suppress(OSError):
            paths.reserve.unlink()
        end = paths.write_end(end)
        print_safely(
            f"{folder.slug}: {end.outcome.value} {end.reason or ''} (log: {paths.log_of(0)})"
        )
        return end


def _end_of(
    folder: CellFolder, file: CellFile, attempt: Attempt, job: Job
) -> AttemptEnd:
    """Measure the cell on this node; a cell that is refused has failed."""
    try:
        _check(folder, file, job)
        return _measure(folder, file, attempt, job)
    except HpmlError as fault:
        return AttemptEnd(attempt=attempt, outcome=Outcome.FAILED, reason=str(fault))


@contextlib.contextmanager
def _explaining(folder: CellFolder) -> Iterator[None]:
    """Turn errors of the file system into what they mean for a cell; others stay as they are.

    Raises:
        NoSpaceError: the disk is full.
        HpmlError: the folder of the cell is gone, or cannot be written.
    """
    try:
        yield
    except OSError as fault:
        if fault.errno in _NO_SPACE:
            raise NoSpaceError(f"{fault.strerror}: {folder.root}") from fault
        if str(folder.root) in str(fault):
            raise HpmlError(
                f"the folder {folder.root} was deleted or renamed while the cell ran, or cannot be "
                "written: submit the cell again"
            ) from fault
        raise


def _with_neighbours(end: AttemptEnd, before: dict[str, str] | None) -> AttemptEnd:
    """Return the end of an attempt with the other jobs on its nodes, before it and now."""
    after = neighbour_jobs()
    if before is None and after is None:
        return end
    jobs = {**(before or {}), **(after or {})}
    neighbours = Neighbours(
        jobs=len(jobs),
        same_user=sum(
            user == os.environ.get("SLURM_JOB_USER") for user in jobs.values()
        ),
        users=tuple(sorted(set(jobs.values()))),
    )
    attempt = replace(end.attempt, neighbours=neighbours)
    return replace(end, attempt=attempt)


def _measure(
    folder: CellFolder, file: CellFile, attempt: Attempt, job: Job
) -> AttemptEnd:
    """Run the workers of this node to their end, and judge it."""
    started_at = time.monotonic()
    paths = folder.attempt(attempt.id)

    def report_stop() -> None:
        """Write a first exit report: SLURM may kill this process before the workers have ended."""
        if job.node == 0:
            end = stopped_end(attempt, paths)
            end = apply_time_limit(end, file, time.monotonic() - started_at)
            paths.write_end(end)

    sampler = sampler_of(file)
    callbacks = Callbacks(sampler.start, report_stop)
    code, stopped = run_workers(file, folder, paths, job, callbacks)
    words = Merged()
    if file.cell.script is not None and job.node == 0:
        words = merge_observed(paths, paths.log_of(0))
    sampler.end(file, paths, job.node, code)
    paths.remove_empty_stacks()
    if file.cell.nodes > 1 and not stopped:
        _wait_for_other_nodes(paths, code)
    torchrun = file.cell.strategy.under_torchrun
    end = judge(attempt, paths, code, stopped=stopped, torchrun=torchrun)
    end = with_next_step(end, file)
    others_have_ended = file.cell.nodes == 1 or code == 0
    if job.node == 0 and code >= 0 and others_have_ended:
        paths.remove_copies()
    end = _with_words_of_merge(end, words)
    end = apply_time_limit(end, file, time.monotonic() - started_at)
    return keep_measured(end, paths) if job.node == 0 else end


def _with_words_of_merge(end: AttemptEnd, words: Merged) -> AttemptEnd:
    """Return the end of a script that went well with what is wrong with its record, or a note."""
    if end.outcome is not Outcome.OK:
        return end
    if words.fault:
        return replace(end, outcome=Outcome.FAILED, reason=words.fault)
    return replace(end, reason=words.note or end.reason)


def _wait_for_other_nodes(paths: AttemptFolder, code: int) -> None:
    """Wait until a shared file system shows what another node wrote: a record, or an error."""
    deadline = time.monotonic() + FILE_LAG_S
    while time.monotonic() < deadline:
        if code == 0:
            has_end = paths.record.exists()
        else:
            has_end = bool(paths.rank_errors() or killed_ranks(ended_ranks(paths)))
        if has_end:
            return
        time.sleep(0.5)


def _check(folder: CellFolder, file: CellFile, job: Job) -> None:
    """Refuse a cell of another version, one that others may have changed, or another cell.

    Raises:
        HpmlError: it is one; cell.json says where code is imported from.
    """
    if file.hpml_jobs != VERSION:
        raise HpmlError(
            f"submitted by hpml_jobs {file.hpml_jobs}, this job's Python ({sys.executable}) has "
            f"{VERSION}: install {file.hpml_jobs} there, or submit again"
        )
    for path in (folder.root.parent, folder.root, folder.cell_json):
        if is_slurm(job.id) and others_can_write(path):
            raise HpmlError(
                f"{path}: other users can write there, and cell.json says which code a job "
                f"imports: chmod go-w {path} if it is yours, and submit again"
            )
    if not file.cell.has_slug(folder.slug):
        raise HpmlError(
            f"{folder.cell_json} describes another cell, {file.cell.slug}: it was edited after "
            "submission; repeat the command that submitted the study, which restores it"
        )


def print_safely(text: str, *, error: bool = False) -> None:
    """Print to standard output or error, which SLURM writes to a disk that may be full."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr if error else sys.stdout, flush=True)


def _with_disk_reason(end: AttemptEnd, folder: CellFolder) -> AttemptEnd:
    """Return the end of a failed attempt with the disk as its reason if that is full now."""
    if end.outcome not in (Outcome.FAILED, Outcome.MISSING):
        return end
    words = _full_disk(folder.root)
    if not words or words in (end.reason or ""):
        return end
    reason = f"{words}; {end.reason}" if end.reason else words
    return replace(end, outcome=Outcome.FAILED, reason=reason)


def _full_disk(folder: Path) -> str:
    """Return the error of writing some bytes into a folder if there is no space for them."""
    probe = folder / f".space-{os.getpid()}"
    try:
        with probe.open("wb") as file:
            file.write(bytes(_RESERVE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as fault:
        return f"{fault.strerror}: {folder}" if fault.errno in _NO_SPACE else ""
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return ""


def main() -> None:
    """Measure the cell in the folder argv[1]; exit with 0 if it finished, else 1."""
    # not killed: it ends its ranks, of which the youngest do not know yet with whom to die
    die_with_parent(signal.SIGTERM)
    # Ctrl-C in a local run reaches this process too, but the launcher is to end it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ignore_submitit_signal()
    sys.exit(not _attempt_to_exit(sys.argv[1]).finished)
