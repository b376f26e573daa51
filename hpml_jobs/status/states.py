"""Where every cell stands: manifest x squeue x sacct x records, one question to each."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.checks import of_study
from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import InvalidRecordError
from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.status.ladders import ladders
from hpml_jobs.status.query import SlurmSnapshot, ask
from hpml_jobs.status.recover import Lost, recovered
from hpml_jobs.status.rules import CellEvidence, state_of
from hpml_jobs.study.attempt import AttemptFolder
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.manifest import History, ManifestEvent, ManifestLine
from hpml_jobs.study.study import TURN_S, Study


class StudyStatus(NamedTuple):
    """The state of every cell of a study, by name, and what SLURM said of its jobs."""

    states: list[CellState]
    seen: SlurmSnapshot


Known = dict[str, tuple[tuple[int, int] | None, Record | None]]
"""Records by slug as they were read before, each with the time and number of its file."""


class FolderSnapshot(NamedTuple):
    """What a cell's folder holds: its file, its record or why that must not be used, an attempt."""

    folder: CellFolder
    file: CellFile | None = None
    record: Record | None = None
    invalid: str = ""
    latest: AttemptFolder | None = None


def states(study: Study, *, before_sending: bool = False) -> list[CellState]:
    """The state of every cell of a study, by name.

    Raises:
        HpmlError: with `before_sending`, where squeue does not say which cells are under way.
    """
    found = standing(study, judged=not before_sending)
    if before_sending and found.seen.no_queue:
        complaint = found.seen.no_queue
        raise HpmlError(f"{complaint}: which cells are under way is not known; try again later")
    return found.states


def standing(
    study: Study, *, all_jobs: bool = False, judged: bool = True, known: Known | None = None
) -> StudyStatus:
    """The states, and SLURM's answers: with `all_jobs` on jobs before a cell's last one too.

    Verdicts are told if `judged`. Records in `known` are not read again while they are the same.
    """
    lost = recovered(study, study.history())
    known = {} if known is None else known
    looks = [_look(folder, known) for folder in study.cells()]
    jobs = {look.folder.slug: _jobs_of(look, lost.history) for look in looks}
    asked = [job for found in jobs.values() for job in found]
    more = (*sent_jobs(study), *lost.history.closing) if all_jobs else ()
    seen = ask(study, [*asked, *more])
    cells_of = Counter(job for found in jobs.values() for job in found)
    shared = lost.history.shared | {job for job, cells in cells_of.items() if cells > 1}
    restarts: dict[str, int] = {}
    for latest in (look.latest for look in looks if look.latest):
        restarts[latest.job] = max(latest.restart, restarts.get(latest.job, 0))
    found = {}
    for look in looks:
        job = _telling(jobs[look.folder.slug], seen)
        if job is None and look.record is None and not look.invalid:
            state = _unsent(look.folder, lost)
        else:
            case = _case(study, look, job or "", seen)
            restart = restarts.get(case.job, 0)
            state = state_of(case._replace(shared_jobs=shared, restart=restart))
        found[state.slug] = state
    found |= ladders(found, {look.folder.slug: look.file for look in looks if look.file})
    return StudyStatus(_judged(found, looks) if judged else list(found.values()), seen)


def sent_jobs(study: Study) -> list[str]:
    """Every job of a study that measures, in the order they were sent."""
    sent = (line for line in study.lines() if line.happening is ManifestEvent.SENT)
    return list(dict.fromkeys(job for line in sent if not line.closing for job in line.jobs))


def _look(folder: CellFolder, known: Known) -> FolderSnapshot:
    try:
        file = folder.read()
    except HpmlError:
        file = None
    look = FolderSnapshot(folder, file, latest=folder.latest_attempt())
    stamp = _stamp(folder.record_json)
    if stamp is None or known.get(folder.slug, (None, None))[0] != stamp:
        try:
            known[folder.slug] = (stamp, folder.read_record())
        except InvalidRecordError as fault:
            return look._replace(invalid=str(fault))
    return look._replace(record=known[folder.slug][1])


def _stamp(path: Path) -> tuple[int, int] | None:
    """What changes when a file is replaced; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def _unsent(cell: CellFolder, lost: Lost) -> CellState:
    """A cell that no job is known of."""
    line = lost.history.unanswered.get(cell.slug)
    if line is not None:
        outcome, reason = _unanswered(line, lost.silent)
        return CellState(slug=cell.slug, outcome=outcome, reason=reason)
    words = lost.history.refused.get(cell.slug)
    reason = f"sbatch refused it: {words}" if words else "not sent yet"
    return CellState(slug=cell.slug, outcome=Outcome.MISSING, reason=reason)


def _unanswered(line: ManifestLine, silent: str) -> tuple[Outcome, str]:
    """What to think of a cell whose sbatch was begun, and whose job is not there."""
    if silent:
        return Outcome.UNKNOWN, f"sbatch was called, its answer is lost; {silent}"
    age = datetime.now(UTC) - datetime.fromisoformat(line.time)
    if age.total_seconds() < TURN_S:
        return Outcome.PENDING, "being sent"
    return Outcome.MISSING, "not sent: sbatch was interrupted, and SLURM has no such job"


def _jobs_of(look: FolderSnapshot, history: History) -> list[str]:
    """The cell's job by the manifest, and that of its last attempt: it may be sent by hand."""
    found = [history.jobs.get(look.folder.slug), look.latest.job if look.latest else None]
    return list(dict.fromkeys(job for job in found if job))


def _telling(jobs: list[str], seen: SlurmSnapshot) -> str | None:
    """The job to tell of: one that is under way, else the first."""
    active = (job for job in jobs if (told := seen.of(job).state) and told.outcome.active)
    return next(active, jobs[0] if jobs else None)


def _case(study: Study, look: FolderSnapshot, job: str, seen: SlurmSnapshot) -> CellEvidence:
    attempt = look.latest if look.latest and look.latest.job == job else None
    end = attempt.read_end() if attempt else None
    return CellEvidence(
        study=study,
        folder=look.folder,
        job=job,
        told=seen.of(job),
        seen=seen,
        file=look.file,
        record=look.record,
        invalid=look.invalid,
        attempt=attempt,
        end=end,
    )


def _judged(found: Mapping[str, CellState], looks: Iterable[FolderSnapshot]) -> list[CellState]:
    """The states with the checks on their records, judged among each other."""
    judged = of_study([look.record for look in looks if look.record])
    return [
        msgspec.structs.replace(state, checks=judged.get(slug, ())) if state.recorded else state
        for slug, state in found.items()
    ]
