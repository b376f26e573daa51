"""The state of a cell: what status, watch and collect say about it."""

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
    """Where a cell stands, with a `reason` for people; `recorded`: a valid record is there.

    `who` must act before a waiting cell can start (nobody: it will by itself), `starts` is when
    SLURM expects it to (UTC, ISO 8601). Of its job: `queued_s` it waited (until now), `elapsed_s`
    it runs or ran, `minutes` it may, on `gpus`; `restarts` of it after a preemption or a lost node.
    `untried`: a smaller batch of its ladder ran out of memory, so this one was not tried.
    `doing` says how far a running cell is, `done` as a share of its training, with `left_s` to go:
    both extrapolated. None is what is not known. `checks` are those on its record, among the
    records of its study; empty without one.
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
        """The reason without the job, for where the job is shown beside it."""
        return self.reason.removesuffix(_IN_JOB.format(self.job))
