"""Were other cells of the workload measured with other hardware or software?"""

from collections.abc import Iterable

from hpml_jobs.core.check_result import Affected, Level, Tier
from hpml_jobs.core.environment import PROFILERS, text_of
from hpml_jobs.core.record import Facts
from hpml_jobs.results.checks.comparison import ByValue, ComparedRun, Differing
from hpml_jobs.results.checks.result import Observation, check, names


@check("conditions", Level.WARN, Tier.TABLE, Affected.TIME)
def other_conditions(run: ComparedRun, kin: ByValue) -> list[Observation | None]:
    """The cell was measured with other hardware or software than cells of the same workload, which
    are in another table: no ratio of the two is a speedup. One outlier is named, not all the others
    with it. Another patch of Python, operating system, kernel or container hardly changes a number.
    Or a profiler was on in all its epochs, by a variable of NCCL, torch or nsys.

    Limit: the same hardware, software and code; no profiler
    Fix: measure again what differs (rerun=true), or measure the table in one go, with one
    installation (rerun=true)
    """
    again = "measure again what differs (rerun=true)"
    in_one_go = "measure the table in one go, with one installation (rerun=true)"
    system = "Python and operating system"
    remarks = run.table.remarks
    return [
        _differing(run, kin, "hardware and software", again),
        _differing(run, remarks, system, in_one_go),
        _profiled(run.record.facts or Facts()),
    ]


def _profiled(facts: Facts) -> Observation | None:
    """Return which variables turned a profiler on, whose cost is in all times."""
    variables = text_of(PROFILERS, facts.nccl_environment | facts.environment)
    text = f"a profiler was on in all epochs: {variables}"
    unset = "unset it and measure again (rerun=true)"
    return Observation(False, text, unset) if variables else None


def _differing(
    run: ComparedRun, values: ByValue, what: str, remedy: str
) -> Observation | None:
    """Return in which conditions a run differs from others."""
    own = values.of(run)
    if not own:
        return None
    others = [dict(value) for value in values.other_values(run)]
    if not others:
        same = f"the same {what} as the other cells of the table"
        return Observation(True, same) if len(run.table.runs) > 1 else None
    differing = values.differing(run)
    differences = [
        f"{name} {value} (theirs {distinct(other[name] for other in others)})"
        for name, value in own
        if any(other[name] != value for other in others)
    ]
    return Observation(
        not differing.is_outlier_of(len(values)),
        f"differs from {names_of(differing)} in {', '.join(differences)}",
        remedy,
    )


def names_of(differing: Differing) -> str:
    """Return the runs that differ: the first few by name, the others counted."""
    return names((run.slug for run in differing.first), differing.number)


def distinct(values: Iterable[object]) -> str:
    """Return values in words, each once."""
    return " | ".join(dict.fromkeys(map(str, values)))
