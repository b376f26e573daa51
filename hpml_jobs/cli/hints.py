"""What to do next with a study, told by where its cells stand."""

from collections.abc import Iterable

from hpml_jobs.core.text import counted
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.cell_state import CellState


def advice(states: Iterable[CellState], named: str) -> list[str]:
    """A line per thing to do, its commands in full; `named` is the study as commands want it."""
    cells = list(states)
    lines = [*_stuck(cells, named), *_again(cells, named)]
    if any(state.outcome.active for state in cells):
        lines.append(f"next: hpml-jobs watch {named}, then hpml-jobs collect {named}")
    elif any(state.recorded for state in cells):
        lines.append(f"next: hpml-jobs collect {named}")
    return lines


def _stuck(cells: list[CellState], named: str) -> list[str]:
    """Waiting cells that will not start by themselves."""
    stuck = [state for state in cells if state.who]
    if not stuck:
        return []
    whom = " or ".join(dict.fromkeys(state.who for state in stuck))
    cannot = f"{counted(len(stuck), 'waiting cell')} cannot start before {whom} acted"
    return [f"{cannot}: hpml-jobs cancel {named} takes waiting cells back"]


def _again(cells: list[CellState], named: str) -> list[str]:
    """What ended without an answer, and how it is sent again."""
    again = f"hpml-jobs resubmit {named}"
    minutes = max((s.minutes or 0 for s in cells if s.outcome is Outcome.TIMEOUT), default=0)
    longer = f"{2 * minutes:.0f}" if minutes else "N"
    why = f"hpml-jobs logs {named} says why, {again} --failed sends what failed again"
    ends = (
        ((Outcome.FAILED, Outcome.INVALID), "failed", why),
        ((Outcome.TIMEOUT,), "out of time", f"{again} --timeout --minutes {longer}"),
        ((Outcome.OOM,), "killed for memory", f"{again} --oom --mem GB"),
        ((Outcome.NODE_FAIL, Outcome.PREEMPTED), "lost by the cluster", f"{again} --lost"),
        ((Outcome.CANCELLED,), "cancelled", f"{again} --cancelled"),
        ((Outcome.MISSING,), "missing", f"{again} --missing"),
    )
    lost = [state for state in cells if state.outcome is Outcome.UNKNOWN and not state.job]
    lines = []
    if lost:
        look = f"squeue --me tells; {again} --missing sends again what was not sent"
        lines.append(
            f"of {counted(len(lost), 'cell')} it is not known whether SLURM took them: {look}"
        )
    if any(state.outcome is Outcome.UNKNOWN and state.job for state in cells):
        lines.append("SLURM does not answer; nothing is lost by it, look again later")
    for outcomes, word, mend in ends:
        # an untried batch of a ladder has its answer too
        ended = [s for s in cells if s.outcome in outcomes and not (s.recorded or s.untried)]
        if ended:
            lines.append(f"{counted(len(ended), 'cell')} {word}: {mend}")
    return lines
