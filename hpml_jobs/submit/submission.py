"""A `Submission`: the selected cells as job requests, checked against the budget."""

from typing import NamedTuple

from hpml_jobs.plan.plan import Plan
from hpml_jobs.status.usage import committed_gpu_hours
from hpml_jobs.submit.followup import check_followup
from hpml_jobs.submit.job_requests import JobRequest, check_budget, make_requests
from hpml_jobs.submit.selection import Selection


class Submission(NamedTuple):
    """The job requests of one command, and the most GPU-hours that they can use."""

    plan: Plan
    selection: Selection
    requests: list[JobRequest]
    gpu_hours: float


def prepare(plan: Plan, selection: Selection) -> Submission:
    """Return the selected cells as job requests.

    Raises:
        UsageError: they exceed the budget, or the follow-up job cannot be submitted.
    """
    requests = make_requests(plan, selection.send)
    gpu_hours = check_submission(plan, selection, requests)
    return Submission(plan, selection, requests, gpu_hours)


def check_submission(plan: Plan, selection: Selection, requests: list[JobRequest]) -> float:
    """Return the most GPU-hours that the requests can use.

    Raises:
        UsageError: they exceed the budget, or the follow-up job cannot be submitted.
    """
    check_followup(plan)
    has_budget = plan.cluster.gpu_hours_budget is not None
    committed = committed_gpu_hours(selection.status) if has_budget else 0
    return check_budget(plan.cluster, requests, committed)
