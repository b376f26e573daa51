"""Plans made from the command line's overrides."""

from collections.abc import Callable

from hpml_jobs.plan.plan import Plan, make_plan
from hpml_jobs.plan.sweep import expand


def plan(*words: str, say: Callable[[str], object] = lambda _: None) -> Plan:
    """Return the plan of these overrides, on digits unless they name a workload."""
    named = any(word.startswith("workload=") for word in words)
    overrides = [*words, *([] if named else ["workload=digits"])]
    return make_plan(expand(overrides, multirun=True), say=say)


def plan_with_folder(*words: str) -> Plan:
    """Return the plan of these overrides; its study's folder exists, as before submission."""
    made = plan(*words)
    made.study.create()
    return made
