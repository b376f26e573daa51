"""Plans made from the command line's overrides."""

from collections.abc import Callable

from hpml_jobs.plan.cells import Plan, PlannedCell
from hpml_jobs.plan.resolve import make_plan
from hpml_jobs.plan.sweep import expand
from hpml_jobs.submit.job_requests import JobRequest, make_requests
from hpml_jobs.submit.scripts import script
from hpml_jobs.submit.send import send


def plan_of(*words: str, notify: Callable[[str], object] = lambda _: None) -> Plan:
    """Return the plan of these overrides, on digits unless they name a workload."""
    named = any(word.startswith("workload=") for word in words)
    overrides = [*words, *([] if named else ["workload=digits"])]
    return make_plan(expand(overrides, multirun=True), notify=notify)


def plan_with_folder(*words: str) -> Plan:
    """Return the plan of these overrides; its study's folder exists, as before submission."""
    plan = plan_of(*words)
    plan.study.create()
    return plan


def requests_of(plan: Plan) -> list[JobRequest]:
    """Return the job requests of all cells of a plan."""
    return make_requests(plan, plan.cells)


def send_cells(plan: Plan, cells: list[PlannedCell] | None = None) -> dict[str, str]:
    """Submit cells (default: all of the plan); return the job of each, by slug."""
    requests = make_requests(plan, plan.cells if cells is None else cells)
    return {slug: job for _, jobs in send(plan, requests) for slug, job in jobs.items()}


def script_of(plan: Plan, request: JobRequest) -> str:
    """Return the sbatch script of a job request."""
    return script(plan.study, plan.cluster, request)
