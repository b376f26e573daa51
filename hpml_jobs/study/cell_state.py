"""The state of a cell, as status, watch and collect show it."""

from hpml_jobs.checks.result import CheckResult
from hpml_jobs.core.value import Value
from hpml_jobs.slurm.states import Outcome

_IN_JOB = ", job {}"


def in_job(reason: str, job: str) -> str:
    """Return a reason that names its job at the end; `CellState.brief` takes the job off again.

    >>> reason = in_job("on gr001", "17_3")
    >>> reason, CellState(slug="a", outcome=Outcome.RUNNING, job="17_3", reason=reason).brief
    ('on gr001, job 17_3', 'on gr001')
    """
    return f"{reason}{_IN_JOB.format(job)}"


class CellState(Value, frozen=True, kw_only=True):
    """The outcome of a cell so far, with a `reason` for people; `recorded`: it has a valid record.

    None is what is not known. `who` must act before a pending cell can start (empty: nobody);
    `starts` is when SLURM expects it to start (UTC, ISO 8601). Of its job: `queued_s` from
    submission to start (or until now), `elapsed_s` since the start, `minutes` is the time limit,
    `gpus` of all nodes, `restarts` after a preemption or a node failure. `untried`: a smaller batch
    of its ladder ran out of memory. Of a running cell: `doing` is its step, `done` the finished
    share of the training, `left_s` the seconds left; both extrapolated. `checks` are the
    data-quality checks of its record.
    """

    slug: str
    outcome: Outcome
    job: str | None = None
    reason: str = ""
    who: str = ""
    node: str = ""
    warning: str = ""
    recorded: bool = False
    untried: bool = False
    restarts: int = 0
    queued_s: float | None = None
    starts: str | None = None
    elapsed_s: float | None = None
    minutes: float | None = None
    gpus: int | None = None
    doing: str = ""
    done: float | None = None
    left_s: float | None = None
    checks: tuple[CheckResult, ...] = ()

    @property
    def brief(self) -> str:
        """The reason without the job, for tables that have a column for it."""
        return self.reason.removesuffix(_IN_JOB.format(self.job))
