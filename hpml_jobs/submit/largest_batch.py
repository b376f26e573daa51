"""`largest_batch=auto`: the ladder that comes before a grid, and the batch that it found."""

from collections.abc import Iterable, Sequence

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.sbatch import OPTIONS
from hpml_jobs.core.text import counted
from hpml_jobs.plan.cells import Plan
from hpml_jobs.submit.explain import values_of
from hpml_jobs.submit.selection import Selection

KEY = "largest_batch="

AUTO = f"{KEY}auto"
"""The ladder's batch; the ladder is submitted first if it has none yet."""

LADDER = f"{KEY}ladder"
"""The ladder's batch; nothing is submitted if it has none."""

_NOT_OF_LADDER = frozenset(
    (
        "grid",
        "largest_batch",
        "recipe",
        "seed",
        "repeats",
        "epochs",
        "protocol",
        "evaluate",
        "collect_after",
        "retries",
        "rerun",
    )
)


def words_after_ladder(words: Iterable[str], ladder: Plan) -> list[str]:
    """Return the words of the submission that follows a ladder, with what variables gave to keys.

    In a job the variables of sbatch are not read.
    """
    keys = {option.default_of for option in OPTIONS.values()}
    of_variables = [
        f"{key}={value}"
        for key, value in values_of(ladder)
        if key in keys and ladder.origins.get(key, "").startswith(("SBATCH_", "SLURM_"))
    ]
    return [*(w for w in words if not w.startswith(KEY)), LADDER, *of_variables]


def ladder_words(words: Sequence[str]) -> list[str]:
    """Return the command line of the ladder for that of a grid.

    Raises:
        UsageError: there is no grid.

    >>> ladder_words(["grid=large_batch", "largest_batch=auto", "seed=0,1", "study=mine"])
    ['grid=ladder', 'gpus=4', 'study=mine']
    """
    if not any(word.startswith("grid=") for word in words):
        raise UsageError(f"{AUTO} is for a grid: add grid=large_batch, or give batch=N")
    kept = [
        word
        for word in words
        if word.partition("=")[0].strip("+") not in _NOT_OF_LADDER
    ]
    if not any(word.startswith("gpus=") for word in kept):
        kept.insert(0, "gpus=4")
    return ["grid=ladder", *kept]


def with_batch(words: Iterable[str], batch: int) -> list[str]:
    """Return a grid's command line with this batch, and without keys of the ladder."""
    kept = [word for word in words if not word.startswith((KEY, "ladder."))]
    return [*kept, f"{KEY}{batch}"]


def largest_that_fits(selection: Selection, *, may_submit: bool) -> int | None:
    """Return the largest batch of a ladder that fits; None if its jobs must be submitted first.

    Raises:
        HpmlError: its jobs have not ended, or no batch fits; or, unless it `may_submit`, a cell has
            no result.
        UsageError: the selection has several ladders.
    """
    plan = selection.plan
    study = plan.study.name
    ladders = len({planned.cell.ladder for planned in plan.cells})
    if ladders > 1:
        raise UsageError(
            f"{AUTO} needs one ladder, and these keys make {ladders}: give one value of each key, "
            f"or {KEY}N"
        )
    by_slug = {state.slug: state.outcome for state in selection.status.states}
    outcomes = {cell.cell.batch: by_slug.get(cell.slug) for cell in plan.cells}
    lacking = [o for o in outcomes.values() if not o or not o.finished]
    active = [outcome for outcome in lacking if outcome and outcome.may_run]
    if lacking:
        if may_submit and not active:
            return None
        state = "pending or running" if active else "without a result"
        raise HpmlError(
            f"the ladder of study {study} has no answer yet, {counted(len(lacking), 'cell')} "
            f"{state}: wait for them, or give {KEY}N"
        )
    fits = [batch for batch, outcome in outcomes.items() if outcome is Outcome.OK]
    if not fits:
        raise HpmlError(
            f"no batch of the ladder of study {study} fits: use ladder.start=N below "
            f"{min(outcomes)}, or give {KEY}N"
        )
    return max(fits)
